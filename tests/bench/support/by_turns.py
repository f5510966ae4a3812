# SPDX-License-Identifier: MIT
"""Shared by benchmarks in Python that take turns with a C++ program: starts the program, and loads the allocator that
counts the bytes of tensors on both sides."""
import ctypes
import json
import subprocess
import sys


class Program:
    """A program that makes a step in each mode it reads from stdin, and answers each with a JSON object."""

    def __init__(self, path, *arguments):
        self.process = subprocess.Popen([path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def step(self, mode):
        print(mode, file=self.process.stdin, flush=True)
        return self.answer()

    def finish(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("the program failed; see its words above")


def load_allocator(folder):
    allocator = ctypes.CDLL(str(folder / "libcounting_allocator.so"))
    for function in (allocator.bench_live_bytes, allocator.bench_peak_bytes):
        function.restype = ctypes.c_int64
    return allocator
