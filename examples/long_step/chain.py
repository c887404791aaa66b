"""Print a chain of hashes: each line depends on all before it, which only memory holds.

python3 chain.py LINES SECONDS_A_LINE
"""

import hashlib
import sys
import time

chain = hashlib.sha256()
for number in range(int(sys.argv[1])):
    chain.update(f"{number} {chain.hexdigest()}\n".encode())
    print(number, chain.hexdigest(), flush=True)
    time.sleep(float(sys.argv[2]))
