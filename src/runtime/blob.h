// The relocatable object of the runtime as bytes inside the compiler (library tripod_runtime_blob): packaging links it
// into every model.so.
#pragma once

#include <stddef.h>

extern "C" const unsigned char tripod_runtime_o[];
extern "C" const size_t tripod_runtime_o_size;
