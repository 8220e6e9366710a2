"""Compilation of the kernels into a library that comes with a wheel (``ahead.py``).

``python -m gzarr_kernels.build FOLDER [x86-64 | aarch64]`` writes the libraries of an architecture, else of this
machine's, one for each target (level of x86-64, or ``aarch64``). Each is compiled in a process of its own, because
Numba takes the processor from its environment when it is imported.

Numba compiles all functions for the target; here they are linked to one module, in which they call each other directly
and C functions through a table of addresses that ``ahead.py`` fills in. A linker turns the object file into a shared
object if there is one for the target (``CC``, else ``cc``), so that processes share it; else the object file is kept.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from .ahead import ADDRESSES_SYMBOL, FINGERPRINT_SYMBOL, file_name, symbol
from .fingerprint import host_fingerprint

_TARGETS: Final = {"x86-64": ["x86-64-v2", "x86-64-v3", "x86-64-v4"], "aarch64": ["aarch64"]}
#: LLVM's names of processors.
_PROCESSORS: Final = {"aarch64": "generic"}
_TRIPLES: Final = {
    ("linux", "x86-64"): "x86_64-unknown-linux-gnu",
    ("linux", "aarch64"): "aarch64-unknown-linux-gnu",
    ("darwin", "x86-64"): "x86_64-apple-macosx",
    ("darwin", "aarch64"): "arm64-apple-macosx",
}
#: Functions of Python and Numba that wrappers of compiled functions call only to report an exception.
_REPORTING: Final = re.compile(r"Py[A-Z]\w+|numba_\w+|NRT_\w+")
_DECLARATION: Final = re.compile(r"^declare (?P<head>.*?)@(?P<name>\w+)\((?P<arguments>[^)]*)\).*$", re.MULTILINE)


def architecture(target: str) -> str:
    """Return the architecture of a target: ``x86-64`` or ``aarch64``."""
    return "aarch64" if target == "aarch64" else "x86-64"


def own_targets() -> list[str]:
    """Return the targets of this machine's architecture; none if it has no libraries."""
    machine = platform.machine().lower()
    own = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64", "aarch64": "aarch64"}.get(machine, "")
    return _TARGETS[own] if (sys.platform, own) in _TRIPLES else []


def build(folder: Path, targets: list[str], *, workers: int = 2) -> list[Path]:
    """Compile libraries.

    Parameters
    ----------
    folder
        Existing folder to write them to.
    targets
        Their targets.
    workers
        Most processes at a time.

    Returns
    -------
    Their files.

    Raises
    ------
    RuntimeError
        If a library cannot be compiled.
    """

    def one(target: str) -> Path:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {
                "NUMBA_CPU_NAME": _PROCESSORS.get(target, target),
                "NUMBA_CPU_FEATURES": "",
                "NUMBA_CACHE_DIR": cache,
                "NUMBA_DISABLE_JIT": "0",
                "GZARR_JIT": "1",
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
            }
            command = [sys.executable, "-m", f"{__package__}.build", "--here", target, str(folder)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the kernels could not be compiled for {target}:\n{done.stdout}{done.stderr}")
        return folder / done.stdout.splitlines()[-1]

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, targets))


def _build_here(folder: Path, target: str) -> Path:
    """Compile the library of one target in this process, whose Numba compiles for that target."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = _TRIPLES[sys.platform, architecture(target)]
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=_PROCESSORS.get(target, target), opt=3, reloc="pic", codemodel="default"
    )
    module = _optimized(_linked(triple, str(machine.target_data)), machine)
    content: bytes = machine.emit_object(module)
    linker = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    suffix = "o"
    if linker is not None and target in own_targets():
        shared = _shared(linker, content)
        if shared is not None:
            content, suffix = shared, "so"
    path = folder / f"{file_name(target, content)}.{suffix}"
    path.write_bytes(content)
    return path


def _shared(linker: str, content: bytes) -> bytes | None:
    """Return the shared object that a linker makes of an object file; None if it cannot."""
    if sys.platform == "linux":
        # Without the standard libraries, the library takes "memcpy" and the like from those of the process, of any
        # version.
        options = ["-nostdlib", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]
    else:
        options = ["-mmacosx-version-min=11.0", "-undefined", "dynamic_lookup"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.o").write_bytes(content)
        command = [*linker.split(), "-shared", *options, "-o", "kernels.so", "kernels.o"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no shared object: {error}\n{getattr(error, 'stderr', '')}", file=sys.stderr)
            return None
        return (Path(folder) / "kernels.so").read_bytes()


def _linked(triple: str, layout: str) -> Any:
    """Return one module with all compiled functions, which exports those that ``compiled.py`` finds."""
    import importlib

    import llvmlite.binding as llvm

    from . import compiled, jit

    for name in compiled.modules():
        importlib.import_module(name)
    # Those that are called by address are compiled when their address is taken.
    addressed = {function.symbol for function in jit.addressed if function.address}
    linked: Any = None
    for name, function in jit.functions.items():
        text = function._library.get_llvm_str().replace(f"@{function._wrapper_name}", f"@{name}")
        text = text.replace(f'@"{function._wrapper_name}"', f"@{name}")
        text = re.sub(r"^target (triple|datalayout) = .*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
        part = llvm.parse_assembly(f'target triple = "{triple}"\ntarget datalayout = "{layout}"\n{text}')
        if linked is None:
            linked = part
        else:
            linked.link_in(part)
    module = llvm.parse_assembly(_with_table(str(linked)))
    exported = {symbol(*entry) for entry in compiled.ENTRIES} | addressed | {FINGERPRINT_SYMBOL, ADDRESSES_SYMBOL}
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exported:
            value.linkage = "internal"
    module.verify()
    missing = exported - {
        value.name for value in (*module.functions, *module.global_variables) if not value.is_declaration
    }
    if missing:
        raise RuntimeError(f"Numba compiled nothing for {sorted(missing)}")
    return module


def _with_table(text: str) -> str:
    """Define the C functions, as calls by address, and the reporting of exceptions, as a stop that is never reached."""
    from . import libraries

    names = libraries.names()
    at = {name: i for i, name in enumerate(names)}

    def define(match: re.Match[str]) -> str:
        name, head = match["name"], match["head"].strip()
        result = head.split()[-1]
        arguments = [argument.split()[0] for argument in match["arguments"].split(",") if argument.strip()]
        parameters = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(arguments))
        if name in at:
            returned = "ret void" if result == "void" else f"ret {result} %r"
            assigned = "" if result == "void" else "%r = "
            return (
                f"define internal {result} @{name}({parameters}) alwaysinline {{\n"
                f"  %p = getelementptr [{len(names)} x ptr], ptr @{ADDRESSES_SYMBOL}, i64 0, i64 {at[name]}\n"
                f"  %f = load ptr, ptr %p, !invariant.load !{{}}\n"
                f"  {assigned}call {result} %f({parameters})\n  {returned}\n}}"
            )
        if _REPORTING.fullmatch(name):
            return f"define internal {result} @{name}({parameters}) {{\n  call void @llvm.trap()\n  unreachable\n}}"
        return match[0]

    text = _DECLARATION.sub(define, text)
    text = re.sub(
        r"^(@PyExc_\w+ =) external global (\w+).*$", r"\1 internal global \2 zeroinitializer", text, flags=re.MULTILINE
    )
    fingerprint = host_fingerprint()
    return (
        f"{text}\n@{ADDRESSES_SYMBOL} = global [{len(names)} x ptr] zeroinitializer\n"
        f'@{FINGERPRINT_SYMBOL} = constant [{len(fingerprint) + 1} x i8] c"{fingerprint}\\00"\n'
        + ("" if "declare void @llvm.trap()" in text else "declare void @llvm.trap() noreturn nounwind cold\n")
    )


def _optimized(module: Any, machine: Any) -> Any:
    """Remove what became unnecessary when the functions were linked.

    Numba has optimized each function. A second run of all optimizations made the placing of transposed chunks half as
    fast.
    """
    import llvmlite.binding as llvm

    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_ipsccp_pass()
    passes.add_global_opt_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    if "call void @llvm.trap" in str(module):
        raise RuntimeError("a function can raise an exception, which nobody would see: write it without")
    return module


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compile the kernels into libraries for a wheel.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("architecture", nargs="?", choices=[*_TARGETS])
    parser.add_argument("--only", metavar="TARGET", help="one target, as x86-64-v2, instead of all of an architecture")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(_build_here(arguments.folder, arguments.here).name)
        return
    targets = own_targets() if arguments.architecture is None else _TARGETS[arguments.architecture]
    if arguments.only is not None:
        targets = [arguments.only]
    for path in build(arguments.folder, targets):
        print(path)


if __name__ == "__main__":
    main()
