"""The wheel: what it has, that it runs where nothing else of zinf is, and that nothing is left."""

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import unittest
import zipfile
from unittest import mock

import zinf
from common import BUILD, MODEL, Case

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def backend():
    path = os.path.join(HERE, "backend", "zinf_build.py")
    spec = importlib.util.spec_from_file_location("zinf_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def clean_environment():
    """Nothing there says where a library is."""
    gone = ("ZINF_LIBRARY", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if key not in gone}


@unittest.skipUnless(shutil.which("ldd"), "there is no ldd")
class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        os.environ["ZINF_WHEEL_BUILD"] = BUILD
        cls.wheels = os.path.join(os.environ["ZINF_TEST_WORK"], "wheels")
        os.makedirs(cls.wheels)
        cls.wheel = os.path.join(cls.wheels, backend().build_wheel(cls.wheels))

    def said(self, *words, **more):
        done = subprocess.run(
            words, capture_output=True, text=True, env=clean_environment(), check=False, **more
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_kernels_are_for_the_cards_that_are_there(self):
        found = backend()._architectures
        known = "".join(f"compute_{arch}\n" for arch in (75, 80, 89, 90, 120))
        self.assertEqual(found(None, "9.0\n8.9\n9.0\n", known), "89 90")
        self.assertEqual(found(None, "12.0\n9.0\n", known), "90 120")
        self.assertEqual(found(None, "", known), "75 80")
        self.assertEqual(found(None, "10.3\n9.0\n", known), "75 80")  # nvcc does not know one
        self.assertEqual(found("90", "8.0\n", known), "90")
        self.assertIsNone(found("all", "8.0\n", known))

    def test_the_record_is_true(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            record = wheel.read([n for n in names if n.endswith("/RECORD")][0]).decode()
            for line in record.splitlines():
                name, digest, size = line.rsplit(",", 2)
                if digest:
                    content = wheel.read(name)
                    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                    self.assertEqual(f"sha256={found.rstrip('=')}", digest, name)
                    self.assertEqual(len(content), int(size))
                names.remove(name)
        self.assertFalse(names)
        self.assertEqual(os.listdir(self.wheels), [os.path.basename(self.wheel)])

    def test_installed_used_and_removed(self):
        venv = self.path("venv")
        try:
            subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
        except subprocess.CalledProcessError:
            self.skipTest("this python3 makes no virtual environments with pip")
        python = os.path.join(venv, "bin", "python")
        before = {os.path.join(at, f) for at, _, files in os.walk(venv) for f in files}
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
        self.said(*pip, "install", "--no-index", self.wheel)
        script = (
            "import sys, zinf; print(zinf._library.lib._name); "
            "print(zinf.plan(sys.argv[1], device='host', seq_len=16).params)"
        )
        library, params = self.said(python, "-c", script, MODEL, cwd=self.folder).split()
        self.assertTrue(library.startswith(venv), library)
        self.assertGreater(int(params), 0)
        version = self.said(os.path.join(venv, "bin", "zinf"), "--version")
        self.assertIn(self.said(python, "-c", "import zinf; print(zinf.__version__)").strip(), version)
        self.assertEqual(self.said(python, "-m", "zinf", "--version", cwd=self.folder), version)
        self.assertTrue(os.path.exists(os.path.join(venv, "share/man/man1/zinf-train.1")))
        self.said(*pip, "uninstall", "-y", "zinf")
        after = {os.path.join(at, f) for at, _, files in os.walk(venv) for f in files}
        self.assertFalse({f for f in after - before if "__pycache__" not in f or "/zinf/" in f})

    def test_what_the_system_lacks_is_brought(self):
        """And nothing else: of what it has, such as OpenSSL, Python's own modules use the same."""
        for name in ("liba.so.1", "libb.so.2", "libcrypto.so.3"):
            open(self.path(name), "w", encoding="ascii").close()
        lacks = {
            self.path("libzinf.so.0"): ["liba.so.1: cannot open", "/lib/libb.so.2: version `B_3' not found"],
            self.path("liba.so.1"): ["libb.so.2: cannot open"],
        }
        made = []

        def load(path):
            for said in lacks.get(path, []):
                if not any(name.endswith(said.split(":")[0].split("/")[-1]) for name in made):
                    raise OSError(said)
            made.append(path)
            return path

        library = zinf._library
        with mock.patch.multiple(library, OTHERS=self.folder, brings_others=False):
            with mock.patch.object(library.ctypes, "CDLL", load):
                library._loaded(self.path("libzinf.so.0"))
                self.assertTrue(library.brings_others)
                lacks[self.path("other.so")] = ["libnone.so: cannot open"]
                self.assertRaisesRegex(OSError, "libnone", library._loaded, self.path("other.so"))
        self.assertEqual(made, [self.path(n) for n in ("libb.so.2", "liba.so.1", "libzinf.so.0")])

    def test_another_version_is_named(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(self.path("there"))
        with open(self.path("there/zinf/_version.txt"), "w", encoding="ascii") as file:
            file.write("9.9.9\n")
        environment = {**clean_environment(), "PYTHONPATH": self.path("there")}
        done = subprocess.run(
            [sys.executable, "-c", "import zinf"], capture_output=True, text=True, env=environment, check=False
        )
        self.assertIn("the package is of version 9.9.9", done.stderr)
