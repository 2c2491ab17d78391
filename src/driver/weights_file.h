// The weights on disk. They are written once, straight from the constants to the file that keeps them, and never pass
// through LLVM or the linker.
//
// Embedded: a page-aligned read-only segment of its own at the end of model.so, so that code and data stay within reach
// of each other however large the weights are. The linker sees a placeholder of one byte (symbol tp_weights, section
// .tripod_weights); embed_weights() then gives the segment its size and contents.
//
// External: a .safetensors file with one tensor, mapped by the runtime (runtime/weights.cc). Its header carries a hash
// of the contents; model.so holds a copy of the header, and so knows its file.
#pragma once

#include <string>

#include "host/weights.h"

namespace tripod {

// A relocatable ELF file that defines tp_weights.
void write_weights_placeholder(const std::string& path);

// Replaces the placeholder in a linked file.
void embed_weights(const std::string& shared_object, const host::Weights& weights);

// The JSON header of a .safetensors file: no size field, padded so that the data behind it starts at a page.
std::string external_weights_header(const host::Weights& weights);
void write_external_weights(const std::string& path, const std::string& header, const host::Weights& weights);

}  // namespace tripod
