"""NumPy reads and changes what libtessera_c.so hands out as DLPack, on two ranks under zero3.

    dlpack.py LIBRARY
"""
import ctypes
import sys

import numpy

OK, CONTRACT_ERROR = 0, 1
ZERO3 = 4
SGD = 2
PARAMETERS = 0

tessera = ctypes.CDLL(sys.argv[1])
tessera.tessera_last_error.restype = ctypes.c_char_p
make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype = ctypes.py_object
make_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
RankBody = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
failures = []


def call(name, *arguments):
    if getattr(tessera, "tessera_" + name)(*arguments) != OK:
        raise RuntimeError(f"{name}: {tessera.tessera_last_error().decode()}")


def written(name, *arguments):
    """What a call writes to its last parameter, a handle."""
    result = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(result))
    return result


class ParameterSpec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dims", ctypes.c_int32), ("frozen", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 8), ("dtype", ctypes.c_int32), ("flag", ctypes.c_int32),
                ("tied_unit", ctypes.c_char_p), ("tied_parameter", ctypes.c_char_p),
                ("room", ctypes.c_int64), ("reserved", ctypes.c_int64 * 4)]


class Options(ctypes.Structure):
    """The first members of every struct of options, with room for the others."""
    _fields_ = [("size", ctypes.c_size_t), ("choice", ctypes.c_int32), ("lr", ctypes.c_float),
                ("rest", ctypes.c_char * 240)]


def options(name, size, *more):
    result = Options()
    call(name + "_options_init", ctypes.byref(result), ctypes.c_size_t(size), *more)
    return result


class Exported:
    """A capsule as NumPy wants it."""

    def __init__(self, what, scope, name):
        self.capsule = make_capsule(written(what + "_dlpack", scope, name), b"dltensor", None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def array(what, scope, name):
    return numpy.from_dlpack(Exported(what, scope, name))


class Writable:
    """The memory of `view`, which NumPy takes for read-only, as DLPack before version 1 says nothing of it."""

    def __init__(self, view):
        self.view = view
        self.__array_interface__ = dict(view.__array_interface__, data=(view.ctypes.data, False))


def train(world):
    state = options("model", 152)
    state.choice = ZERO3
    model = written("model_create", world, ctypes.byref(state))
    spec = ParameterSpec(name=b"w", dims=2, shape=(3, 4))
    unit = ctypes.c_uint64()
    call("add_unit", model, b"unit", ctypes.byref(spec), ctypes.c_size_t(1), None, ctypes.byref(unit))
    call("materialize_constant", model, ctypes.c_float(2.0))
    sgd = options("optimizer", 88, ctypes.c_int32(SGD))
    sgd.lr = 0.5
    call("optimize_with", model, ctypes.byref(sgd))

    scope = written("forward", model, unit)
    w = array("parameter", scope, b"w")
    assert w.shape == (3, 4) and w.dtype == numpy.float32 and (w == 2.0).all(), w
    assert tessera.tessera_close(scope) == CONTRACT_ERROR, "a view is held"
    assert b"DLPack views of 'w' are still held" in tessera.tessera_last_error(), tessera.tessera_last_error()
    del w
    call("close", scope)

    scope = written("backward", model, unit)
    w = array("parameter", scope, b"w")
    gradient = numpy.asarray(Writable(array("gradient", scope, b"w")))
    gradient += numpy.arange(12, dtype=numpy.float32).reshape(3, 4) * w
    del w, gradient
    call("close", scope)
    call("step", model, None)

    evaluation = written("evaluate", model)
    scope = written("forward", model, unit)
    w = array("parameter", scope, b"w").copy()
    call("close", scope)
    call("end_evaluation", evaluation)
    assert (w == 2.0 - 0.5 * 2.0 * numpy.arange(12).reshape(3, 4)).all(), w


def rank_body(world, user):
    try:
        train(ctypes.c_void_p(world))
        return OK
    except BaseException as error:  # no exception passes through C
        failures.append(error)
        return tessera.tessera_fail(8, repr(error).encode())


body = RankBody(rank_body)
if tessera.tessera_run_ranks(2, body, None, None) != OK:
    sys.exit(f"{tessera.tessera_last_error().decode()}\n{failures}")
print(f"NumPy {numpy.__version__} has read a parameter and changed a gradient in place")
