"""Writes tests/data/display.jsonl: arrays and numpy's own text of them, one JSON object a line, {"d", "s", "x"} as in case.py."""
import json
import pathlib

import numpy as np

NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32", "int64": "i64", "int8": "i8", "uint64": "u64", "bool": "bool"}


def arrays():
    r = np.random.default_rng(5)
    return [
        np.array([[1,2],[3,4]],np.float32), np.array([1.5,2.25,-3.125],np.float32), np.array([0.1,0.2,1/3],np.float32), np.array([0.1,0.2,1/3],np.float64),
        np.array([1e-5,1.0],np.float32), np.array([1e10,1.0],np.float64), np.array([123456.0,1.0],np.float32), np.array([999999.0,999.0*2],np.float32),np.array([1234567.0],np.float32),
        np.array([np.nan,1,2],np.float32), np.array([np.inf,-np.inf,1],np.float32), np.array([np.nan,np.nan],np.float32), np.array([np.inf,1e-7],np.float64), np.array([0,-0.0],np.float32),
        np.array([1,-20,300],np.int32), np.array([True,False]), np.zeros((0,3),np.float32), np.zeros((2,0),np.int32), np.array(1.5,np.float32), np.array(3,np.int64), np.array(True), np.array(1e-7,np.float32), np.array(1e20), np.array(0.1,np.float16),
        np.arange(24,dtype=np.int32).reshape(2,3,4), np.arange(16,dtype=np.float64).reshape(2,2,2,2), r.standard_normal((3,4)).astype(np.float32), r.standard_normal((3,4)), r.standard_normal((30,)).astype(np.float32), r.standard_normal((2,30)),
        np.arange(2000,dtype=np.int32), np.arange(10000,dtype=np.float32).reshape(100,100), np.arange(1001,dtype=np.float64), r.standard_normal((11,10,12)).astype(np.float32), r.standard_normal((1,1,2000)).astype(np.float32),
        (r.standard_normal((5,5))*10.0**r.integers(-8,8,(5,5))).astype(np.float32), r.standard_normal((5,5))*10.0**r.integers(-8,8,(5,5)), np.array([1,2.5,65504],np.float16), np.array([0.1,0.333,1.25],np.float16), np.array([1e-3,999],np.float16),
        np.array([2**63,1],np.uint64), np.array([-128,127],np.int8), r.integers(-1000,1000,(3,40)).astype(np.int64), np.array([1e-300,1e300]), np.array([1e100]), np.array([0.00012345,0.1]), np.array([16777216.0,1.0],np.float32),np.array([1e-45,3.4e38],np.float32), np.full((4,),1e-4), np.array([[True,False],[False,False]]),
        np.array([1.123456789,2.1]), np.array([12345.678,1.5]), np.array([100000.5,99999.25],np.float32), np.array([[1.0,np.nan],[-np.inf,2.5]]), r.uniform(-1,1,(6,6)).astype(np.float16), np.array([5e-324]), np.array([-1.0,1.0]),np.array(-0.0), np.array(123456789.0), np.array(1e16), np.array(12345.678,np.float32),
    ]


def main():
    path = pathlib.Path(__file__).resolve().parents[2] / "tests/data/display.jsonl"
    lines = [json.dumps({"d": NAMES[a.dtype.name], "s": list(a.shape), "x": a.tobytes().hex(), "text": str(a)}) for a in arrays()]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
