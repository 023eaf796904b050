"""The package's build backend (PEP 517), without any other package.

A wheel has the Python files, the library, the command, CUDA's and MPI's modules where the build has
them, the manual pages, and the shared libraries that all of these need beside glibc: so it runs
where neither a compiler nor those libraries are. It is built by scripts/build.sh of the checkout, in
its folder build-wheel; the environment variable ZINF_WHEEL_BUILD names a build folder that is taken
as it is.

Only what is installed is compiled. Where nvcc is, kernels are compiled for the GPUs that nvidia-smi
names; where it names none, for compute capabilities 7.5 and 8.0, whose PTX the driver compiles for
any later GPU at the first run. ZINF_CUDA_ARCH has others: "90 120", or "all".
"""

import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(HERE)
_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread)|libcu.*|libnv.*)\.so")


def _version():
    with open(os.path.join(ROOT, "configure.ac"), encoding="utf-8") as file:
        return re.search(r"AC_INIT\(\[zinf\], \[([^]]+)\]\)", file.read()).group(1)


def _build():
    named = os.environ.get("ZINF_WHEEL_BUILD")
    if named:
        return named
    build = os.path.join(ROOT, "build-wheel")
    script = os.path.join(ROOT, "scripts", "build.sh")
    if not os.path.exists(script):
        raise RuntimeError(f"{HERE} is not in a checkout of zinf: pip install ./python of one")
    environment = {**os.environ, "ZINF_TARGET": "installed"}
    # Symbols for debuggers take time, and no wheel has them.
    flags = [f"{name}=-O2" for name in ("CFLAGS", "CXXFLAGS") if name not in os.environ]
    subprocess.run(["sh", script, build, *flags, *_cuda_flags()], check=True, env=environment)
    return build


_EVERYWHERE = "75 80"


def _architectures(wanted, cards, known):
    """For which GPUs: as ZINF_CUDA_ARCH says, or the capabilities of cards where the compiler knows
    all of them. None: all that the compiler knows.

    >>> _architectures(None, "9.0\\n8.9\\n9.0\\n", "compute_80\\ncompute_89\\ncompute_90\\n")
    '89 90'
    >>> _architectures(None, "", "compute_80\\n"), _architectures("all", "9.0", "")
    ('75 80', None)
    """
    if wanted:
        return None if wanted == "all" else wanted
    found = {card.strip().replace(".", "") for card in cards.splitlines() if card.strip()}
    found = sorted(found, key=lambda card: (len(card), card))
    is_known = found and all(re.search(rf"compute_{card}$", known, re.M) for card in found)
    return " ".join(found) if is_known else _EVERYWHERE


def _said(*words):
    """What a program prints; nothing where it is not there, or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout


def _cuda_flags():
    """Arguments of configure. What they mean is printed; pip shows it with -v."""
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not nvcc:
        print("zinf: there is no nvcc: the wheel has no CUDA module, and computes on the CPU", flush=True)
        return []
    cards = _said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    known = _said(nvcc, "--list-gpu-arch")
    chosen = _architectures(os.environ.get("ZINF_CUDA_ARCH"), cards, known)
    print(f"zinf: kernels are compiled for compute capabilities {chosen or 'of all kinds'}", flush=True)
    return [f"--with-cuda-arch={chosen}"] if chosen else []


# ---- what a wheel has ----


def _needed(files):
    """The shared libraries of files that are not glibc's or the driver's, by path."""
    found = {}
    for file in files:
        text = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", text, re.M):
            if not _GLIBC.match(name):
                found[name] = path
    return found


def _blas(build):
    """OpenBLAS is loaded by its name, so it is in no list of what the library needs."""
    with open(os.path.join(build, "build-config.h"), encoding="utf-8") as file:
        name = re.search(r'^#define ZINF_BLAS_LIBRARY "(.*)"', file.read(), re.M)
    if not name:
        return {}
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    path = re.search(rf"^\s*{re.escape(name.group(1))} .*=> (\S+)$", known, re.M)
    return {name.group(1): path.group(1)} if path else {}


def _stripped(path, folder):
    """A copy without symbols for debuggers, where strip is there."""
    to = os.path.join(folder, hashlib.sha256(path.encode()).hexdigest())
    shutil.copyfile(path, to)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", to], check=True)
    return to


def _programs(build):
    """What was compiled, by its place in the wheel."""
    found = {
        "zinf/_prefix/lib/libzinf.so.0": os.path.join(build, ".libs", "libzinf.so.0"),
        "zinf/_prefix/bin/zinf": os.path.join(build, "zinf"),
    }
    for name in ("zinf-cuda.so", "zinf-mpi.so"):
        path = os.path.join(build, ".libs", name)
        if os.path.exists(path):
            found[f"zinf/_prefix/lib/zinf/{name}"] = path
    return found


def _manuals(build, data):
    pages = glob.glob(os.path.join(ROOT, "man", "*.[1-9]"))
    for page in pages + glob.glob(os.path.join(build, "man", "*.[1-9]")):
        yield f"{data}/data/share/man/man{page[-1]}/{os.path.basename(page)}", page


def _files(build, data, scratch):
    """All files: name in the wheel, and path."""
    for path in sorted(glob.glob(os.path.join(HERE, "zinf", "**"), recursive=True)):
        if path.endswith((".py", "py.typed")):
            yield os.path.relpath(path, HERE), path
    programs = _programs(build)
    for name, path in programs.items():
        yield name, _stripped(os.path.realpath(path), scratch)
    blas = _blas(build)
    libraries = {**blas, **_needed([*programs.values(), *blas.values()])}
    for name, path in sorted(libraries.items()):
        yield f"zinf/_prefix/others/{name}", os.path.realpath(path)
    yield from _manuals(build, data)


# ---- the wheel ----


class _Wheel:
    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.info, self.record = info, []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self):
        name = f"{self.info}/RECORD"
        self.record.append(f"{name},,")
        self.add(name, "\n".join(self.record + [""]).encode())
        self.zip.close()


def _metadata(version):
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    return (
        f"Metadata-Version: 2.1\nName: zinf\nVersion: {version}\n"
        "Summary: Out-of-core training of transformer language models\n"
        "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + text
    ).encode()


def _tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: the name of the wheel that was made in wheel_directory."""
    version, build = _version(), _build()
    name, info = f"zinf-{version}-{_tag()}.whl", f"zinf-{version}.dist-info"
    scratch = os.path.join(wheel_directory, "zinf-scratch")
    os.makedirs(scratch, exist_ok=True)
    wheel = _Wheel(os.path.join(wheel_directory, name), info)
    try:
        for place, path in _files(build, f"zinf-{version}.data", scratch):
            with open(path, "rb") as file:
                wheel.add(place, file.read(), 0o755 if place.endswith("/bin/zinf") else 0o644)
        wheel.add("zinf/_version.txt", f"{version}\n".encode())
        wheel.add(f"{info}/METADATA", _metadata(version))
        wheel.add(
            f"{info}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: zinf_build\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode(),
        )
        wheel.add(f"{info}/entry_points.txt", b"[console_scripts]\nzinf = zinf.__main__:main\n")
        wheel.close()
    finally:
        shutil.rmtree(scratch)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517; what is released is the tarball of make dist."""
    raise RuntimeError("zinf has no sdist of its own: make dist makes the tarball, which has ./python")
