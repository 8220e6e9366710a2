"""A device kernel as machine code for the host, made from the LLVM IR that numba-cuda passes to NVVM.

It has the integer types that Numba chose for a GPU, and the program's barriers, atomic operations and shared memory.
The instructions of a GPU are replaced by calls of ``kernel_ir.ll`` and ``kernels.c``, all functions are inlined, and
checks are added:

- of the memory of a load, a store or an atomic operation, and of the alignment that it claims,
- of shifts by at least the number of bits, of divisions by zero, and of signed sums, differences, products and quotients
  that overflow: LLVM, and so NVVM, may produce any result;
- of functions that raise: on a GPU this ends the thread without notice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_RUNTIME: Final = Path(__file__).with_name("kernel_ir.ll")
_REGISTERS: Final = [f"{what}.{axis}" for what in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
_NAME: Final = r'(?:"[^"]*"|[-\w.$]+)'
#: Runtime functions as the kernel calls them at first; parameters are added later: ``%here``, the thread's position, and
#: ``%state``, of the launch.
_DECLARATIONS: Final = "\n".join(
    [
        *(f"declare i32 @host.{name}() nounwind willreturn memory(none)" for name in _REGISTERS),
        "declare ptr @host.shared(i64) nounwind willreturn memory(none)",
        "declare void @host.barrier(i64) convergent noduplicate nounwind",
        "declare void @host.shift(i64, i64, i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
        "declare void @host.raised(i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
        "declare void @host.overflow(i1, i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
        "declare void @host.divide(i1, i64) nounwind willreturn memory(inaccessiblemem: readwrite)",
    ]
)
_WITH_OVERFLOW: Final = {"add": "sadd", "sub": "ssub", "mul": "smul"}


class CannotRunOnHostError(Exception):
    """The IR contains something without a replacement."""


@dataclass(frozen=True)
class HostKernel:
    """A kernel for the host.

    Attributes
    ----------
    code
        Object file, with one symbol: the ``program`` of ``kernels.c``.
    parameters
        Size of each of its parameters in bytes.
    """

    code: bytes
    parameters: list[int]


def on_host(modules: list[str], name: str, symbol: str) -> HostKernel:
    """Compile a kernel for the host.

    Parameters
    ----------
    modules
        Modules of LLVM IR, as numba-cuda passes them to NVVM.
    name
        Name for messages.
    symbol
        Name of the symbol.

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
    module = llvm.parse_assembly(made.checked(str(whole), kernel.strip('"'), name, symbol))
    module.verify()
    _optimise(module, machine)
    return HostKernel(machine.emit_object(module), [_nbytes(kind) for kind in made.parameters])


def _machine() -> Any:
    return llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")


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
        self.parameters: list[str] = []

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
        divided = re.match(r" *%.* = ([us](?:div|rem)) (?:exact )?i(\d+) (.*), (%.*)$", line)
        if divided:
            return f"{self._division(*divided.groups(), self._site(line))}\n{line}"
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

    def _division(self, what: str, bits: str, a: str, b: str, site: int) -> str:
        zero, lowest, minus, both, flag = (f'%"{word}.{site}"' for word in ("zero", "lowest", "minus", "both", "flag"))
        lines = [f"  {zero} = icmp eq i{bits} {b}, 0"]
        if what[0] == "u":
            flag = zero
        else:
            lines += [
                f"  {lowest} = icmp eq i{bits} {a}, {-(1 << int(bits) - 1)}",
                f"  {minus} = icmp eq i{bits} {b}, -1",
                f"  {both} = and i1 {lowest}, {minus}",
                f"  {flag} = or i1 {zero}, {both}",
            ]
        return "\n".join([*lines, f"  call void @host.divide(i1 {flag}, i64 {site})"])

    # -- after inlining: text of the host's LLVM

    def checked(self, text: str, kernel: str, name: str, symbol: str) -> str:
        """Return one kernel's module with its description and with checks of memory operations."""
        # Attributes inferred by the optimiser no longer hold once a function calls the runtime.
        text = re.sub(r"^attributes #.*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?<=[)\w]) #\d+", "", text)
        text = re.sub(r"^declare .* @host\..*$", "", text, flags=re.MULTILINE)
        self._check_nothing_is_missing(text, kernel)
        text = re.sub(r"(call [^\n]*@host\.[\w.]+)\(\)", r"\1(ptr %here, ptr %state)", text)
        text = re.sub(r"(call [^\n]*@host\.[\w.]+)\((?!ptr %here)", r"\1(ptr %here, ptr %state, ", text)
        (header,) = re.findall(rf'^define [^\n]*@"?{re.escape(kernel)}"?\((.*)\)[^()\n]*{{$', text, re.MULTILINE)
        text = re.sub(
            r"^define [^\n]*\{$",
            f"define internal void @kernel({header}, ptr %here, ptr %state) noinline {{",
            text,
            flags=re.MULTILINE,
        )
        text = "\n".join(map(self._memory_operation, text.split("\n")))
        self.parameters = [parameter.split()[0] for parameter in re.split(r",\s*(?![^()]*\))", header)]
        text = re.sub(r"^(?:target|source_filename) .*\n", "", text, flags=re.MULTILINE)
        constants = re.findall(rf"^@({_NAME}) = [^\n]*?\b(?:constant|global) (\[[^\]]*\]|\w+) ", text, re.MULTILINE)
        own = (self._description(name, symbol, constants), _registers(), _trampoline(self.parameters))
        return "\n".join([self.target, _RUNTIME.read_text(), *own, text])

    def _description(self, name: str, symbol: str, constants: list[tuple[str, str]]) -> str:
        """Return the ``program`` of ``kernels.c``."""
        lines = [_string("host.name", name)]
        lines += [_string(f"host.site.{i}", site) for i, site in enumerate(self.sites)]
        sites = ", ".join(f"ptr @host.site.{i}" for i in range(len(self.sites)))
        lines.append(f"@host.sites = internal constant [{len(self.sites)} x ptr] [{sites}]")
        ranges = ", ".join(
            f"{{ptr, i64}} {{ptr @{at}, i64 ptrtoint (ptr getelementptr ({kind}, ptr null, i64 1) to i64)}}"
            for at, kind in constants
        )
        lines.append(f"@host.constants = internal constant [{len(constants)} x {{ptr, i64}}] [{ranges}]")
        numbers = f"i64 {self.shared_nbytes}, i64 {int(self.cooperates)}, i64 {len(self.sites)}"
        lines.append(
            f"@{symbol} = constant %Program {{ptr @host.name, ptr @host.kernel, {numbers}, ptr @host.sites, "
            f"i64 {len(constants)}, ptr @host.constants}}"
        )
        return "\n".join(lines)

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
        if line.startswith("define"):
            return line
        many = re.match(r" *(?:tail )?call void @llvm\.(memcpy|memmove|memset)\.[\w.]*\((.*)\)", line)
        if many:
            to, source, nbytes = (argument.split()[-1] for argument in many[2].split(", ")[:3])
            places = [to] if many[1] == "memset" else [to, source]
            site = self._site(line)
            calls = [f"  call void @coh_kernel_range({_HERE}, ptr {at}, i64 {nbytes}, i64 {site})" for at in places]
            return "\n".join([*calls, line])
        found = re.match(rf" *(?:%{_NAME} = )?(load|store|atomicrmw|cmpxchg)\b(.*?)\bptr (%{_NAME})[, ](.*)", line)
        if not found:
            return line
        what, before, address, after = found.groups()
        # The type is before the address of a load or a store, and after that of an atomic operation.
        typed = before if what in ("load", "store") else after
        kind = re.match(r" *(?:volatile |atomic )*(<\d+ x \w+>|\w+\b)", typed)
        if kind is None:
            raise CannotRunOnHostError(f"the harness does not know how much is accessed: {line.strip()}")
        site = self._site(line)
        checks = [f"  call void @host.pause({_HERE})"]
        (alignment,) = re.findall(r", align (\d+)", line) or ["1"]
        if alignment != "1":
            checks.append(f"  call void @host.align({_HERE}, ptr {address}, i64 {int(alignment) - 1}, i64 {site})")
        checks.append(f"  call void @host.access({_HERE}, ptr {address}, i64 {_nbytes(kind[1])}, i64 {site})")
        return "\n".join([*checks, line])


#: Arguments of each function of the runtime.
_HERE: Final = "ptr %here, ptr %state"


def _nbytes(kind: str) -> int:
    """Return the size of a type of LLVM."""
    vector = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    if vector:
        return int(vector[1]) * _nbytes(vector[2])
    known = {"ptr": 8, "float": 4, "double": 8}
    if kind in known:
        return known[kind]
    if not re.fullmatch(r"i\d+", kind):
        raise CannotRunOnHostError(f"the harness does not know the size of {kind}")
    return -(-int(kind[1:]) // 8)


def _string(name: str, text: str) -> str:
    content = text.encode() + b"\0"
    escaped = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'\\"' else f"\\{byte:02x}" for byte in content)
    return f'@{name} = internal constant [{len(content)} x i8] c"{escaped}"'


_DECLARATIONS_OF_OVERFLOW: Final = "".join(
    f"declare {{i64, i1}} @llvm.{name}.with.overflow.i64(i64, i64)\n" for name in _WITH_OVERFLOW.values()
)


def _runtime_functions() -> list[str]:
    return re.findall(r"@(host\.[\w.]+)\(", _DECLARATIONS)


def _registers() -> str:
    """Return the functions that give the thread's position, and the address of its block's shared memory."""
    head = "define internal {} @host.{}(ptr %here, ptr %state{}) alwaysinline {{\n"
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
    """Return the function that calls the kernel with arguments at addresses."""
    lines = ["define internal void @host.kernel(ptr %args, ptr %here, ptr %state) noinline {"]
    for i, kind in enumerate(types):
        lines.append(f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %q{i} = load ptr, ptr %p{i}")
        lines.append(f"  %a{i} = load {kind}, ptr %q{i}, align 1")
    given = "".join(f"{kind} %a{i}, " for i, kind in enumerate(types))
    return "\n".join([*lines, f"  call void @kernel({given}ptr %here, ptr %state)\n  ret void\n}}\n"])
