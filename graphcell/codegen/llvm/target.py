"""The only place that talks to LLVM's target machinery.

Enters: the text of a module. Leaves: object code, optimised text, assembly, or the addresses of loaded
functions. Refuses: text that LLVM does not parse or verify, and symbols that neither the object nor the
process defines (`CodegenError`).

Functions that are called from outside a module take pointers and integers only: how a vector is passed
depends on the features of the target, so vectors never cross a call. llvmlite holds one lock around each call
of LLVM; every compilation here has a context of its own, so that parts of a program can be translated at the same time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import llvmlite.binding as llvm

from graphcell.codegen.llvm.processor import NOT_RUN, PASSES, Processor, Target, describe
from graphcell.errors import CodegenError
from graphcell.locks import Lock, hold_during_forks, translating

_CONTEXT_LINES = 2
_DYLIB = "graphcell"
_PATIENCE = 5.0
"""Seconds that a new thread may take to begin."""


hold_during_forks(llvm.ffi.lib._lock)  # else the child may wait for ever for what another thread holds inside LLVM


# -- the host ------------------------------------------------------------------------------------------------
@functools.cache
def host_processor() -> Processor:
    """What LLVM says of the processor of this process."""
    _initialize()
    return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), tuple(sorted(llvm.get_host_cpu_features().items())))


def host(vector_bytes: str | None = None) -> Target:
    """The target for this process. `vector_bytes` limits the vectors, by default to what `GRAPHCELL_VECTOR_BYTES` says, see `describe`."""
    return describe(host_processor(), vector_bytes)


# -- compilation ---------------------------------------------------------------------------------------------
@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _machine(target: Target) -> Any:
    """The one for who holds `translating`."""
    return _new_machine(target)


def _new_machine(target: Target) -> Any:
    """Position-independent code with 32-bit displacements, so that a polynomial's constants are operands in
    memory, not extra loads.
    """
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
    )


def compile_object(text: str, target: Target) -> bytes:
    """Object code (ELF or Mach-O) of a module's text.

    Raises CodegenError if LLVM does not accept the text; its message shows the lines around the place.
    """
    return compile_objects([text], target)[0]


def compile_objects(texts: Sequence[str], target: Target) -> list[bytes]:
    """Object code of several modules, each made by a thread of its own.

    Raises CodegenError like `compile_object`.
    """
    with Translator(target) as translator:
        for text in texts:
            translator.begin(text, apart=len(texts) > 1)
        return translator.results()


class Translator:
    """`with Translator(target) as translator:` makes object code of modules; those that are begun apart, in threads of their own, while the caller goes on."""

    def __init__(self, target: Target):
        self._target = target
        self._works: list[_Work] = []

    def __enter__(self) -> Translator:
        with contextlib.ExitStack() as stack:
            stack.enter_context(translating)
            stack.enter_context(_selection_options())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def begin(self, text: str, apart: bool = True) -> None:
        """Has a module translated: from now on, or when the results are asked for."""
        work = _Work(text, self._target, _new_machine(self._target) if apart else _machine(self._target))
        self._stack.callback(work.free)
        self._works.append(work)
        if apart:
            work.start()

    def results(self) -> list[bytes]:
        """The object code of all modules, as they were begun. Raises CodegenError if LLVM does not accept a text, or cannot make code of it."""
        for work in self._works:
            work.translate_here()
        return [work.result() for work in self._works]


class _Work:
    """The translation of a module: by a thread of its own, or by who asks for the result."""

    def __init__(self, text: str, target: Target, machine: Any):
        self._text, self._target, self._machine = text, target, machine
        self._parsed = _Parsed(text, target, machine)
        with _closing_on_error(self._parsed):
            self._passes = _Passes(machine)
        self._code: bytes | None = None
        self._error: Exception | None = None
        self._process = 0  # the one in which a thread was started
        self._has_begun = self._has_ended = False
        self._end = threading.Lock()

    def start(self) -> None:
        self._end.acquire()
        self._process = os.getpid()
        try:
            threading.Thread(target=self._run, name="graphcell compiler").start()
        except RuntimeError:  # no more threads
            self._process = 0

    def translate_here(self) -> None:
        """Unless a thread does it, or it is done."""
        if not self._process and self._code is None and self._error is None:
            self._translate()

    def result(self) -> bytes:
        self._wait()
        self.translate_here()
        if self._process and not self._has_ended:  # it never began, or a fork left it behind amid the module
            machine = _new_machine(self._target)
            with contextlib.closing(_optimized(self._text, self._target, machine)) as parsed:
                return _emit(parsed.module, machine)
        if self._error is not None:
            raise self._error
        assert self._code is not None
        return self._code

    def free(self) -> None:
        try:
            self._wait()
        finally:
            if self._has_ended or not self._process:  # else it is freed with the thread, if there is one
                self._parsed.close()

    def _translate(self) -> None:
        try:
            self._parsed.parse()
            self._passes.run(self._parsed.module)
            self._code = _emit(self._parsed.module, self._machine)
        except Exception as error:
            self._error = error

    def _run(self) -> None:
        self._has_begun = True
        self._translate()
        self._has_ended = True
        self._end.release()

    def _wait(self) -> None:
        """Until the thread has ended, also if that is interrupted: LLVM cannot be, and reads the module. (`Thread.join` takes a thread for dead
        when it is interrupted.) A thread whose start was interrupted may never begin.
        """
        interruption: BaseException | None = None
        patience = time.monotonic() + _PATIENCE
        while self._process == os.getpid() and not self._has_ended and (self._has_begun or time.monotonic() < patience):
            try:
                with _llvmlite_open():
                    self._end.acquire(timeout=0.05)
            except BaseException as error:
                interruption = error
        if interruption is not None:
            try:
                raise interruption
            finally:
                del interruption  # whose traceback holds this frame


@contextlib.contextmanager
def _llvmlite_open() -> Iterator[None]:
    """With llvmlite's lock open, if it is this thread that holds it, as after an interruption amid its opening or closing: Python may collect garbage in the
    thread that is waited for, and what frees something of LLVM's takes the lock.
    """
    lock: Any = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None)
    if not getattr(lock, "_is_owned", bool)():
        yield
        return
    held = lock._release_save()
    try:
        yield
    finally:
        lock._acquire_restore(held)


def _emit(module: Any, machine: Any) -> bytes:
    """What `machine.emit_object(module)` gives, without llvmlite's lock: modules have contexts of their own, and to translate one is what takes
    LLVM's time. A thread that does not wait for the lock always ends, even if an interruption left it closed for ever in another one. (For garbage that it
    happens to collect, see `_llvmlite_open`.)
    """
    message = ctypes.c_char_p()
    buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, ctypes.byref(message))
    if not buffer:
        raise CodegenError(f"LLVM cannot make code of the generated module: {_taken(message)}")
    try:
        return ctypes.string_at(_unlocked("LLVMPY_GetBufferStart")(buffer), _unlocked("LLVMPY_GetBufferSize")(buffer))
    finally:
        _unlocked("LLVMPY_DisposeMemoryBuffer")(buffer)


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock around it; as it is where a later llvmlite has other insides."""
    function = getattr(llvm.ffi.lib, name)
    return getattr(function, "_cfn", function)


def optimized_text(text: str, target: Target) -> str:
    """The module's text after the passes, for people who look inside."""
    with translating, contextlib.closing(_optimized(text, target, _machine(target))) as parsed:
        return str(parsed.module)


def assembly(text: str, target: Target) -> str:
    """The machine code of a module as assembly, for people who look inside."""
    with translating, _selection_options(), contextlib.closing(_optimized(text, target, _machine(target))) as parsed:
        return str(_machine(target).emit_assembly(parsed.module))


@contextlib.contextmanager
def _selection_options() -> Iterator[None]:
    """Switches off what instruction selection does in vain here; back on afterwards, since these options belong to the whole process. Who enters holds
    `translating`, perhaps twice: Python may run anything while a program is lowered.
    """
    _Options.depth += 1
    try:
        for name in NOT_RUN:
            llvm.set_option("graphcell", f"-{name}=true")
        yield
    finally:
        _Options.depth -= 1
        for name in NOT_RUN if not _Options.depth else ():
            llvm.set_option("graphcell", f"-{name}=false")


class _Options:
    depth = 0


class _Parsed:
    """The module of a text in a context of its own, there and verified after `parse`. `close` frees the one, then the other.

    Until then the context is held here: of two that are found dead together, as an interruption may leave them, Python could free the
    context first, and the process would crash.
    """

    _contexts: ClassVar[list[Any]] = []

    def __init__(self, text: str, target: Target, machine: Any):
        self.module: Any = None
        self._text, self._triple, self._layout = text, target.triple, str(machine.target_data)
        self._context = llvm.create_context()
        self._contexts.append(self._context)

    def parse(self) -> None:
        """Without llvmlite's lock, like `_emit`. Raises CodegenError if LLVM does not accept the text."""
        message = ctypes.c_char_p()
        module = _unlocked("LLVMPY_ParseAssembly")(self._context, ctypes.c_char_p(self._text.encode()), ctypes.byref(message))
        if message:
            raise CodegenError(_explain(_taken(message), self._text))
        self.module = llvm.ModuleRef(module, self._context)
        is_refused, reason = _unlocked("LLVMPY_VerifyModule")(self.module, ctypes.byref(message)), _taken(message)
        if is_refused:
            raise CodegenError(f"LLVM refuses the generated module: {reason}")
        _unlocked("LLVMPY_SetTarget")(self.module, ctypes.c_char_p(self._triple.encode()))
        _unlocked("LLVMPY_SetDataLayout")(self.module, ctypes.c_char_p(self._layout.encode()))

    def close(self) -> None:
        if self.module is not None:
            self.module.close()
        self._contexts.remove(self._context)


def _taken(message: ctypes.c_char_p) -> str:
    """What LLVM says, whose memory is given back."""
    text = (message.value or b"").decode(errors="replace")
    _unlocked("LLVMPY_DisposeString")(message)
    return text


def _optimized(text: str, target: Target, machine: Any) -> _Parsed:
    """The module of a text after the passes. Who asks for it closes it."""
    parsed = _Parsed(text, target, machine)
    with _closing_on_error(parsed):
        parsed.parse()
        _Passes(machine).run(parsed.module)
    return parsed


@contextlib.contextmanager
def _closing_on_error(parsed: _Parsed) -> Iterator[None]:
    try:
        yield
    except BaseException:
        parsed.close()
        raise


class _Passes:
    """PASSES for a module, run without llvmlite's lock, like `_emit`."""

    def __init__(self, machine: Any):
        self._builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(1))
        self._manager = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(self._manager, f"add_{name}_pass")()

    def run(self, module: Any) -> None:
        """In one call: between several, a thread would wait for Python's lock."""
        _unlocked("LLVMPY_RunNewModulePassManager")(self._manager, module, self._builder)


def _explain(message: str, text: str) -> str:
    """LLVM's complaint with the lines around the place that it names."""
    match = re.search(r"<string>:(\d+):(\d+): error: (.*)", message)
    if not match:
        return f"LLVM cannot parse the generated module: {message}"
    line, column, complaint = int(match[1]), int(match[2]), match[3]
    lines = text.splitlines()
    first, last = max(1, line - _CONTEXT_LINES), min(len(lines), line + _CONTEXT_LINES)
    shown = [f"LLVM cannot parse the generated module: {complaint}"]
    for number in range(first, last + 1):
        shown.append(f"  {number:>6} | {lines[number - 1]}")
        if number == line:
            shown.append(f"         | {' ' * (column - 1)}^")
    return "\n".join(shown)


# -- loading -------------------------------------------------------------------------------------------------
class Library:
    """Loaded object code. Addresses hold as long as the Library lives; its memory is freed with it."""

    def __init__(self, jit: Any, tracker: Any):
        self._jit, self._tracker = jit, tracker
        # A tracker that a look-up returns frees the code when it dies, as the library's own does: all of them
        # are kept, and no two threads look up one name.
        self._found: dict[str, Any] = {}
        self._looking = Lock()

    def address(self, name: str) -> int:
        """The address of a function or a global that the object defines. Raises CodegenError if it defines
        none of this name, or if the object asks for a symbol that the process does not have.
        """
        with self._looking:
            if name not in self._found:
                self._found[name] = self._look_up(name)
            return int(self._found[name][name])

    def _look_up(self, name: str) -> Any:
        try:
            return self._jit.lookup(_DYLIB, name)
        except RuntimeError as error:
            raise CodegenError(f"cannot load {name}: {error}") from error


def load_object(*objects: bytes) -> Library:
    """Maps object code, of one module or of several that belong together, into the process. Symbols that it lacks (malloc, memcpy, pthread_create, fmod …) are
    taken from the process.

    Each library has an engine of its own (half a millisecond), which gives all memory back. JITLink places
    the code and the constants of an object side by side, so short displacements always reach. Raises
    CodegenError if one of them is not an object of this platform.
    """
    _initialize()
    jit = llvm.create_lljit_compiler(None, use_jit_link=True)
    try:
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        return Library(jit, builder.add_current_process().link(jit, _DYLIB))
    except RuntimeError as error:
        raise CodegenError(f"cannot load object code: {error}") from error
