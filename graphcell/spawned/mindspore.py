"""`import mindspore` in a process that multiprocessing spawned from a program run by `python -m graphcell run`.

Such a process gets the program's `sys.path` before it runs the program's file again, but not its finders. `run` puts this folder on that
path, where this file gives way to graphcell.
"""

import sys

from graphcell import alias

del sys.modules[__name__]
alias.install()
