"""A device kernel as machine code for the host, made from the LLVM IR that numba-cuda passes to NVVM.

The simulator runs Python and Numba's code for the host, so it cannot show the integer types that Numba chose for a GPU,
or the program's barriers, atomics and shared memory. Here, the instructions of a GPU are replaced by calls of
``kernel_ir_runtime.ll``, all functions are inlined, and checks are added:

- of the alignment that a load, a store or an atomic operation claims,
- of shifts by at least the number of bits, and of signed sums, differences and products that overflow: LLVM, and so
  NVVM, may produce any result;
- of functions that raise: on a GPU this ends the thread without notice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_RUNTIME: Final = Path(__file__).with_name("kernel_ir_runtime.ll")
_REGISTERS: Final = [f"{what}.{axis}" for what in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
_NAME: Final = r'(?:"[^"]*"|[-\w.$]+)'
#: Runtime functions as the kernel calls them at first; a parameter ``%here``, the thread's position, is added later.
_DECLARATIONS: Final = "\n".join(
    [
        *(f"declare i32 @host.{name}() nounwind willreturn memory(none)" for name in _REGISTERS),
        "declare ptr @host.shared(i64) nounwind willreturn memory(none)",
        "declare void @host.barrier(i64) convergent noduplicate nounwind",
        "declare void @host.shift(i64, i64, i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
        "declare void @host.raised(i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
        "declare void @host.overflow(i1, i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
    ]
)
_WITH_OVERFLOW: Final = {"add": "sadd", "sub": "ssub", "mul": "smul"}


class CannotRunOnHostError(Exception):
    """The IR contains something without a replacement."""


@dataclass(frozen=True, eq=False)
class HostKernel:
    """A kernel that the host can run.

    Attributes
    ----------
    launch
        Address of ``host.launch``.
    signal
        Address of its signal handler.
    shared_nbytes
        Size of a block's shared memory in bytes.
    cooperates
        Whether the threads of a block depend on each other.
    sites
        Instructions, for messages of faults.
    text
        IR with checks.
    """

    launch: int
    signal: int
    shared_nbytes: int
    cooperates: bool
    sites: list[str]
    text: str = field(repr=False)
    _engine: Any = field(repr=False)


def on_host(modules: list[str]) -> HostKernel:
    """Compile a kernel for the host.

    Parameters
    ----------
    modules
        Modules of LLVM IR, as numba-cuda passes them to NVVM.

    Raises
    ------
    CannotRunOnHostError
        If they use a feature of GPUs that has no replacement.
    """
    machine = _machine()
    made = _Exchange(f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n')
    (kernel,) = {name for text in modules for name in re.findall(r'@("[^"]*"), !"kernel", i32 1', text)}
    whole = llvm.parse_assembly(made.target)
    for text in modules:
        whole.link_in(llvm.parse_assembly(made.exchanged(text)))
    for function in whole.functions:
        if not function.is_declaration and function.name != kernel.strip('"'):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    whole.verify()
    _optimise(whole, machine)
    text = made.checked(str(whole), kernel.strip('"'))
    module = llvm.parse_assembly(text)
    module.verify()
    _optimise(module, machine)
    engine = llvm.create_mcjit_compiler(module, _machine())
    engine.finalize_object()
    return HostKernel(
        engine.get_function_address("host.launch"),
        engine.get_function_address("host.signal"),
        made.shared_nbytes,
        made.cooperates,
        made.sites,
        text,
        engine,
    )


def _machine() -> Any:
    return llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True)


def _optimise(module: Any, machine: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    # A GPU's compiler does not vectorise loops like this.
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


class _Exchange:
    """Common parts of the texts of a kernel."""

    def __init__(self, target: str) -> None:
        # The target determines the alignment of loads and stores; for integers it is the same as on a GPU.
        self.target = target
        self.sites: list[str] = []
        self.shared_nbytes = 0
        self.cooperates = False

    def _site(self, line: str) -> int:
        self.sites.append(line.strip())
        return len(self.sites) - 1

    # -- before inlining: text of Numba's LLVM

    def exchanged(self, text: str) -> str:
        """Return a module with calls of the runtime in place of a GPU's instructions, and with checks of arithmetic."""
        text = re.sub(r'declare \w+ @"(llvm\.nvvm\.read\.ptx\.sreg\.[^"]*|llvm\.nvvm\.barrier0)"\(\)\n', "", text)
        text = re.sub(r"^(target |!nvvm|@\"llvm\.used\"|@\"_ZN08NumbaEnv).*$", "", text, flags=re.MULTILINE)
        text = re.sub(r'@"llvm\.nvvm\.read\.ptx\.sreg\.(\w+\.[xyz])"', r"@host.\1", text)
        text = self._with_memories(text)
        text = "\n".join(map(self._arithmetic, text.split("\n")))
        return "\n".join([self.target, text, _DECLARATIONS_OF_OVERFLOW, _DECLARATIONS])

    def _with_memories(self, text: str) -> str:
        """Make shared memory part of the block's memory, and constant memory ordinary."""
        places = {}
        pattern = rf"^@({_NAME}) = .*addrspace\(3\) global \[(\d+) x [if](\d+)\] undef, align (\d+)$"
        for name, count, bits, alignment in re.findall(pattern, text, re.MULTILINE):
            places[name] = -(-self.shared_nbytes // int(alignment)) * int(alignment)
            self.shared_nbytes = places[name] + int(count) * int(bits) // 8
            self.cooperates = True
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
        text = re.sub(
            rf"addrspacecast [^\n]* addrspace\(3\)\* @({_NAME}) to i8\*",
            lambda m: f"call i8* @host.shared(i64 {places[m[1]]})",
            text,
        )
        text = re.sub(r"addrspacecast ([^\n]*) addrspace\(4\)\* ", r"bitcast \1* ", text)
        return text.replace("addrspace(4) constant", "constant")

    def _arithmetic(self, line: str) -> str:
        if '@"llvm.nvvm.barrier0"()' in line:
            self.cooperates = True
            return line.replace('@"llvm.nvvm.barrier0"()', f"@host.barrier(i64 {self._site(line)})")
        if " = atomicrmw " in line or " = cmpxchg " in line:
            self.cooperates = True
        if re.match(r" *ret i32 [1-9]\d*$", line):
            return f"  call void @host.raised(i64 {self._site(line)})\n{line}"
        shift = re.match(r" *%.* = (?:shl|lshr|ashr) (i\d+) .*, (%.*)$", line)
        if shift:
            kind, by = shift.groups()
            wide, before = by, ""
            if kind != "i64":
                wide = f'%"wide.{len(self.sites)}"'
                before = f"  {wide} = zext {kind} {by} to i64\n"
            return f"{before}  call void @host.shift(i64 {wide}, i64 {kind[1:]}, i64 {self._site(line)})\n{line}"
        signed = re.match(r" *(%.*) = (add|sub|mul) nsw i64 (.*), (.*)$", line)
        if signed:
            to, what, a, b = signed.groups()
            pair, flag = (f'%"{word}.{len(self.sites)}"' for word in ("pair", "flag"))
            return (
                f"  {pair} = call {{i64, i1}} @llvm.{_WITH_OVERFLOW[what]}.with.overflow.i64(i64 {a}, i64 {b})\n"
                f"  {flag} = extractvalue {{i64, i1}} {pair}, 1\n"
                f"  call void @host.overflow(i1 {flag}, i64 {self._site(line)})\n"
                f"  {to} = extractvalue {{i64, i1}} {pair}, 0"
            )
        return line

    # -- after inlining: text of the host's LLVM

    def checked(self, text: str, kernel: str) -> str:
        """Return one kernel's module with the runtime and with checks of memory operations."""
        # Attributes inferred by the optimiser no longer hold once a function calls the runtime.
        text = re.sub(r"^attributes #.*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?<=[)\w]) #\d+", "", text)
        text = re.sub(r"^declare .* @host\..*$", "", text, flags=re.MULTILINE)
        self._check_nothing_is_missing(text, kernel)
        text = re.sub(r"(call [^\n]*@host\.[\w.]+)\(\)", r"\1(ptr %here)", text)
        text = re.sub(r"(call [^\n]*@host\.[\w.]+)\((?!ptr %here)", r"\1(ptr %here, ", text)
        (header,) = re.findall(rf'^define [^\n]*@"?{re.escape(kernel)}"?\((.*)\)[^()\n]*{{$', text, re.MULTILINE)
        text = re.sub(
            r"^define [^\n]*\{$",
            f"define internal void @kernel({header}, ptr %here) noinline {{",
            text,
            flags=re.MULTILINE,
        )
        text = "\n".join(map(self._memory_operation, text.split("\n")))
        types = [parameter.split()[0] for parameter in re.split(r",\s*(?![^()]*\))", header)]
        text = re.sub(r"^(?:target|source_filename) .*\n", "", text, flags=re.MULTILINE)
        return "\n".join([self.target, _RUNTIME.read_text(), _registers(), _trampoline(types), text])

    def _check_nothing_is_missing(self, text: str, kernel: str) -> None:
        defined = re.findall(rf"^define [^\n]*@({_NAME})\(", text, re.MULTILINE)
        if [name.strip('"') for name in defined] != [kernel]:
            raise CannotRunOnHostError(f"not everything is inlined: {defined}")
        missing = set(re.findall(rf"^declare [^\n]*@({_NAME})\(", text, re.MULTILINE))
        missing |= set(re.findall(rf"@(host\.{_NAME})\(", text)) - set(_runtime_functions())
        missing = {name for name in missing if not name.startswith("llvm.") or name.startswith("llvm.nvvm.")}
        if re.search(r"\baddrspace\(|\basm\b", text):
            missing.add(next(line for line in text.split("\n") if re.search(r"\baddrspace\(|\basm\b", line)))
        if missing:
            raise CannotRunOnHostError(f"the harness has nothing in place of {', '.join(sorted(missing))}")

    def _memory_operation(self, line: str) -> str:
        found = re.match(rf" *(?:%{_NAME} = )?(?:load|store|atomicrmw|cmpxchg) .*?\bptr (%{_NAME})[, ]", line)
        if not found or line.startswith("define"):
            return line
        before = ""
        (alignment,) = re.findall(r", align (\d+)", line) or ["1"]
        if alignment != "1":
            given = f"ptr %here, ptr {found[1]}, i64 {int(alignment) - 1}, i64 {self._site(line)}"
            before = f"  call void @host.align({given})\n"
        return f"{before}  call void @host.pause(ptr %here)\n{line}"


_DECLARATIONS_OF_OVERFLOW: Final = "".join(
    f"declare {{i64, i1}} @llvm.{name}.with.overflow.i64(i64, i64)\n" for name in _WITH_OVERFLOW.values()
)


def _runtime_functions() -> list[str]:
    return re.findall(r"@(host\.[\w.]+)\(", _DECLARATIONS)


def _registers() -> str:
    """Return the functions that give the thread's position, and the address of its block's shared memory."""
    head = "define internal {} @host.{}(ptr %here{}) alwaysinline {{\n"
    texts = [
        head.format("i32", name, "")
        + f"  %p = getelementptr %Here, ptr %here, i64 0, i32 0, i32 {i}\n  %v = load i32, ptr %p\n  ret i32 %v\n}}\n"
        for i, name in enumerate(_REGISTERS)
    ]
    texts.append(
        head.format("ptr", "shared", ", i64 %offset")
        + "  %p = getelementptr %Here, ptr %here, i64 0, i32 1\n  %begin = load ptr, ptr %p\n"
        "  %v = getelementptr i8, ptr %begin, i64 %offset\n  ret ptr %v\n}\n"
    )
    return "\n".join(texts)


def _trampoline(types: list[str]) -> str:
    """Return the function that calls the kernel with arguments in memory, 8 bytes each."""
    lines = ["define internal void @host.kernel(ptr %args, ptr %here) noinline {"]
    for i, kind in enumerate(types):
        lines.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}\n  %a{i} = load {kind}, ptr %p{i}")
    given = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(types))
    return "\n".join([*lines, f"  call void @kernel({given}, ptr %here)\n  ret void\n}}\n"])
