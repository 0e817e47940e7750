"""Public functions: ordinary Python composed of primitives, used by both modes and by the compiler."""
