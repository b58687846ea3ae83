"""python -m tests.sweeps.cuda_sweep: see the package's docstring."""

import os
import sys

from tests.sweeps.cuda_sweep import no_cuda

if __name__ == "__main__":
    if "--forced" in sys.argv:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it at import
    no_cuda.pretend()
    from tests.sweeps.cuda_sweep import run

    run.main()
