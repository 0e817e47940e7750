"""The intermediate representation: typed SSA graphs. Knows no particular op."""
