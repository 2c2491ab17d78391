// The constants of a model, laid out for the file: each once for each layout it is wanted in, 64-byte aligned, packed
// at compile time (no work on the first call).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/types.h"
#include "loop/ir.h"

namespace tripod::host {

class Weights {
 public:
  // Offset in bytes of a constant of type `t`, stored as `wanted` says: its layout and its (possibly padded) shape;
  // elements that only the padding has are zero. An equal constant in an equal layout is shared.
  int64_t place(const graph::ConstAttr& bytes, const graph::Type& t, const loop::Buffer& wanted);

  int64_t size() const { return size_; }
  // A hash of everything that has been placed, where it is and how it is laid out.
  std::string identity() const;
  // All bytes in order, in pieces (gaps are zeros up to the piece's offset).
  struct Piece {
    int64_t offset, size;
    const std::byte* data;
  };
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::unordered_map<std::string, int64_t> known_;
  std::vector<Piece> pieces_;
  std::vector<std::shared_ptr<const void>> owners_;
  int64_t size_ = 0;
};

}  // namespace tripod::host
