# The runtime is linked INTO every model.so: compiled here to one relocatable object per source with the flags
# that keep its undefined symbols to libc (no exceptions, no RTTI, no libstdc++, no unique symbols), and embedded
# in the compiler. tripod_runtime_host is the same code as a library, for unit tests.
