"""The sampler on a machine whose wall clock jumps an hour back at every look at it."""

import time
from itertools import count

from edgeprof.profiling.child import serve
from edgeprof.profiling.sampling import work

if __name__ == "__main__":
    hours = count()
    time.time = lambda: 1e9 - 3600.0 * next(hours)
    time.time_ns = lambda: int(1e9 * time.time())
    serve(work)
