"""Cuts the power of one mounted ext4 file system: everything that is not on its disk yet is gone.

Usage: power_cut.py MOUNTPOINT. Needs root. The file system answers errors from then on, until it is
unmounted and mounted again.
"""

import fcntl
import os
import struct
import sys

# EXT4_IOC_SHUTDOWN = _IOR('X', 125, __u32), with EXT4_GOING_FLAGS_NOLOGFLUSH: not even the journal
# is written out.
SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
NO_LOG_FLUSH = 2

mountpoint = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
try:
    fcntl.ioctl(mountpoint, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
finally:
    # The unmounting waits for whoever holds a descriptor.
    os.close(mountpoint)
