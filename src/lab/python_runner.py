"""Runs a library's kernel in a process of its own, for lab/python_process.cpp, which starts it and asks.

Questions come as lines of JSON on stdin, answers leave as lines of JSON. What libraries print goes to stderr. A
script defines

    def bind(p):     # p.q, p.window, ...: what the variant's declaration named
        return call  # call() makes one call of the kernel: on a GPU it enqueues on the current stream and returns
    def library():   # what was measured, for the record: "FlashAttention 3 (vllm 0.26.0), fa_version=3"
        return text

On the host a tensor is a memoryview of the parent's memory, and inputs are read-only. On a GPU it is torch's, a copy:
the parent's buffers are copied in before a sample's clock starts, poisoned outputs among them, and outputs back after it
has ended. Kernels that worked in the parent's buffers, opened by CUDA IPC, moved 1 GiB in 505 us on an H200
(2026-11-23), three unlike kernels alike, where DRAM takes 255. Likely the opened memory takes more address
translations, or loses them when the GPU turns to this process. Copies that this process owns should leave neither to
the library; that they do is not measured yet.
"""
import ctypes
import json
import linecache
import mmap
import os
import sys
import time
import traceback
import types

FLAGS_FD = 3  # of a page shared with the parent
GO, DONE = 0, 16  # places of the two flags on it, in words of 32 bits


class Missing(Exception):
    """The machine lacks something: a typed skip, no failure."""

    def __init__(self, reason, need):
        super().__init__(need)
        self.reason, self.need = reason, need


def map_file(path, writable):
    fd = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(fd, 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(fd)


class Host:
    FORMATS = {"fp32": "f", "fp64": "d", "int8": "b", "uint8": "B", "int32": "i", "uint32": "I", "int64": "q"}

    def __init__(self):
        self.flags = memoryview(mmap.mmap(FLAGS_FD, 0)).cast("I")

    def tensor(self, a):
        memory = memoryview(map_file(a["allocation"], a["written"]))
        payload = memory[a["offset"]:a["offset"] + a["bytes"]]
        return payload.cast(self.FORMATS[a["type"]], *([a["extents"]] if a["bytes"] else []))

    def guard(self, a):
        memory = memoryview(map_file(a["allocation"], False))
        return int.from_bytes(memory[a["offset"] - 8:a["offset"]], "little")

    def close(self, a):
        pass  # unmapped with the last view of it

    def run(self, sets, ticket, answer):
        answer({"enqueued": ticket})
        while self.flags[GO] != ticket:  # the parent lets go or ends this process, each within a bounded time
            pass
        start = time.perf_counter_ns()
        for _, call in sets:
            call()
        ns = time.perf_counter_ns() - start
        self.flags[DONE] = ticket
        return ns


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Gpu:
    LAZY_PEER_ACCESS, DEVICE_MAPPED, AT_LEAST = 1, 2, 0  # flags of the driver's calls below

    def __init__(self):
        import torch

        if not torch.cuda.is_available():
            raise Missing("needs_library", f"a torch with CUDA (torch {torch.__version__} sees no GPU)")
        self.torch = torch
        self.types = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
                      "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8}
        torch.cuda.set_stream(torch.cuda.Stream())
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.scratch = torch.zeros(32, device="cuda")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.page = mmap.mmap(FLAGS_FD, 0)
        page, device = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.page))), ctypes.c_uint64()
        self.check("cuMemHostRegister_v2", page, ctypes.c_size_t(len(self.page)), self.DEVICE_MAPPED)
        self.check("cuMemHostGetDevicePointer_v2", ctypes.byref(device), page, 0)
        self.flags = device.value
        self.opened = {}  # handle -> address here
        self.copies = {}  # handle -> (the parent's, ours, whether it is an output)
        torch.cuda.synchronize()

    def check(self, name, *arguments):
        error = getattr(self.driver, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(error, ctypes.byref(text))
            raise OSError(f"{name}: {(text.value or b'error').decode()} ({error})")

    def address(self, a):
        handle = a["allocation"]
        if handle not in self.opened:
            address = ctypes.c_uint64()
            try:
                self.check("cuIpcOpenMemHandle_v2", ctypes.byref(address),
                           Handle.from_buffer_copy(bytes.fromhex(handle)), self.LAZY_PEER_ACCESS)
            except OSError as error:
                raise Missing("needs_feature", f"GPU memory shared between processes: {error}") from error
            self.opened[handle] = address.value
        return self.opened[handle] + a["offset"]

    def words(self, address, count, code):
        view = types.SimpleNamespace(__cuda_array_interface__={
            "shape": (count,), "typestr": code, "data": (address, False), "strides": None, "version": 3})
        return self.torch.as_tensor(view, device="cuda")

    def tensor(self, a):
        kind = self.types[a["type"]]
        if a["bytes"] == 0:
            return self.torch.empty(a["extents"], dtype=kind, device="cuda")
        theirs = self.words(self.address(a), a["bytes"], "|u1").view(kind).view(a["extents"])
        self.copies[a["allocation"]] = (theirs, self.torch.empty_like(theirs), a["written"])
        return self.copies[a["allocation"]][1]

    def guard(self, a):
        return int(self.words(self.address(a) - 8, 1, "<i8").item()) % (1 << 64)

    def close(self, a):
        self.copies.pop(a["allocation"], None)
        address = self.opened.pop(a["allocation"], None)
        if address is not None:
            self.torch.cuda.synchronize()
            self.check("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def run(self, sets, ticket, answer):
        copies = {a["allocation"]: self.copies[a["allocation"]] for tensors, _ in sets for a in tensors if a["bytes"]}
        for theirs, ours, _ in sorted(copies.values(), key=lambda copy: copy[2]):  # outputs last, as their poison
            ours.copy_(theirs)
        self.torch.cuda.synchronize()  # or the parent's clock would see the copies
        # The GPU waits for the parent's word until all is enqueued, so that the launches are in nobody's time.
        self.check("cuStreamWaitValue32_v2", self.stream, ctypes.c_uint64(self.flags + 4 * GO),
                   ctypes.c_uint32(ticket), self.AT_LEAST)
        self.scratch.add_(1)  # the GPU turns to this process before the clock starts
        self.start.record()
        for _, call in sets:
            call()
        self.end.record()
        self.check("cuStreamWriteValue32_v2", self.stream, ctypes.c_uint64(self.flags + 4 * DONE),
                   ctypes.c_uint32(ticket), 0)
        for theirs, ours, written in copies.values():
            if written:
                theirs.copy_(ours)
        answer({"enqueued": ticket})
        self.torch.cuda.synchronize()
        return self.start.elapsed_time(self.end) * 1e6


def load_script(name, text):
    file = "fathom:" + name
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # where Triton looks for its source
    script = types.ModuleType(name.removesuffix(".py"))
    script.__file__, script.Missing = file, Missing
    sys.modules[script.__name__] = script
    exec(compile(text, file, "exec"), script.__dict__)
    return script


class Runner:
    def __init__(self, answer):
        self.answer = answer
        self.sets = {}  # set -> (its arguments, its call)

    def start(self, script, text, backend):
        self.place = Gpu() if backend == "cuda" else Host()
        self.script = load_script(script, text)
        return {"ready": True}

    def bind(self, set, arguments):
        values = {}
        for a in arguments:
            if "allocation" in a and self.place.guard(a) != a["guard"]:
                raise OSError(f"the memory opened for '{a['name']}' is not what the parent shared")
            values[a["name"]] = self.place.tensor(a) if "allocation" in a else a["value"]
        tensors = [a for a in arguments if "allocation" in a]
        self.sets[set] = (tensors, self.script.bind(types.SimpleNamespace(**values)))
        return {"library": self.script.library()}

    def run(self, sets, ticket):
        return {"ns": self.place.run([self.sets[s] for s in sets], ticket, self.answer)}

    def forget(self, set):
        tensors, _ = self.sets.pop(set, ([], None))
        for a in tensors:
            self.place.close(a)
        return {"forgotten": set}


def main():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: never outlives the parent
    if os.getppid() != int(sys.argv[1]):
        return
    sys.path[:] = [folder for folder in sys.path if folder]  # a folder here may be called like a library
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    runner = Runner(answer)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer(getattr(runner, question.pop("do"))(**question))
        except Missing as missing:
            answer({"missing": missing.reason, "need": missing.need})
        except ImportError as error:
            answer({"missing": "needs_library", "need": f"Python: {error}"})
        except Exception as error:  # whatever a library throws: the parent ends this process
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"})


main()
