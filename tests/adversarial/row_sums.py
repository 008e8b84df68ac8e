"""The sums of rows, on the host, right or not as p.how says: what python_variants.cpp measures."""
import os
import time

calls = 0
true_clock = time.perf_counter_ns


def library():
    return "row_sums 1.0, how=plain"


def bind(p):
    if p.how == "missing_module":
        import no_module_of_this_name  # noqa: F401
    rows, cols = p.x.shape if p.x.ndim == 2 else (0, 0)

    def call():
        global calls
        calls += 1
        if calls > 20 and p.how == "dies":
            os._exit(3)
        if calls > 20 and p.how == "hangs":
            time.sleep(1e6)
        if p.how == "unwritten":
            return
        for r in range(rows):
            total = 0.0
            for c in range(cols):
                total += p.x[r, c]
            p.out[r] = total + (1.0 if p.how == "wrong" else 0.0)

    if p.how == "false_time":
        time.perf_counter_ns = lambda: true_clock() // 2
    if p.how == "raises":
        raise ValueError("a shape that it does not take")
    return call
