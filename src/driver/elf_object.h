// A relocatable ELF object that holds the weights: one page-aligned read-only section under the hidden symbol
// `tp_weights`. Written directly, since passing hundreds of megabytes through LLVM is slow.
#pragma once

#include <string>

#include "host/weights.h"

namespace tripod {

void write_weights_object(const std::string& path, const host::Weights& weights);

}  // namespace tripod
