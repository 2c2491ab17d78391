// The weights in a linked file: a segment of their own, read back byte by byte; and the file beside a model.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/diagnostic.h"
#include "codegen/llvm_unit.h"
#include "driver/link.h"
#include "driver/weights_file.h"

namespace tripod {
namespace {

struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / ("tripod_driver_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path;
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Two constants, f32[n] and u8[5], at offsets that are multiples of 64.
struct Constants {
  explicit Constants(int64_t n) : numbers(static_cast<size_t>(n)) {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) + 0.5f;
    offset_a = place(numbers.data(), n * 4, DType::f32, n);
    offset_b = place(bytes, 5, DType::u8, 5);
  }
  int64_t place(const void* data, int64_t size, DType t, int64_t n) {
    graph::ConstAttr a;
    a.data = static_cast<const std::byte*>(data), a.size = size;
    graph::Type type;
    type.dtype = t, type.shape = {c.constant(n)};
    return weights.place(a, type, loop::make_buffer("c", t, type.shape, loop::Scope::constant));
  }
  sym::Context c;
  std::vector<float> numbers;
  uint8_t bytes[5] = {1, 2, 3, 4, 5};
  host::Weights weights;
  int64_t offset_a = 0, offset_b = 0;
};

// A shared object whose function `where` returns the address of the weights.
void link_with_placeholder(const Folder& folder, const std::string& so) {
  codegen::LlvmUnit unit("test", {});
  llvm::Module& m = unit.module();
  llvm::IRBuilder<> b(m.getContext());
  auto* weights = llvm::cast<llvm::GlobalVariable>(m.getOrInsertGlobal("tp_weights", b.getInt8Ty()));
  weights->setVisibility(llvm::GlobalValue::HiddenVisibility);
  auto* table = new llvm::GlobalVariable(m, b.getPtrTy(), true, llvm::GlobalValue::InternalLinkage, weights, "table");
  auto* f = llvm::Function::Create(llvm::FunctionType::get(b.getPtrTy(), {}, false), llvm::GlobalValue::ExternalLinkage, "where", m);
  b.SetInsertPoint(llvm::BasicBlock::Create(m.getContext(), "entry", f));
  b.CreateRet(b.CreateLoad(b.getPtrTy(), table, true));
  const std::vector<char> object = unit.object();
  std::ofstream(folder.file("test.o"), std::ios::binary).write(object.data(), static_cast<std::streamsize>(object.size()));
  write_weights_placeholder(folder.file("weights.o"));
  link_shared_object({folder.file("test.o"), folder.file("weights.o")}, so);
}

TEST(EmbeddedWeights, AreReadBack) {
  for (int64_t n : {1, 16, 1000, 300'000}) {
    const Folder folder;
    const std::string so = folder.file("model_" + std::to_string(n) + ".so");
    link_with_placeholder(folder, so);
    Constants k(n);
    embed_weights(so, k.weights);
    void* handle = dlopen(so.c_str(), RTLD_NOW);
    ASSERT_TRUE(handle) << dlerror();
    const char* data = reinterpret_cast<const char* (*)()>(dlsym(handle, "where"))();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
    EXPECT_EQ(std::memcmp(data + k.offset_a, k.numbers.data(), k.numbers.size() * 4), 0) << n;
    EXPECT_EQ(std::memcmp(data + k.offset_b, k.bytes, 5), 0) << n;
    dlclose(handle);
    // The section table is whole: the section has the size of the weights, and every section lies inside the file.
    const std::string file = content(so);
    Elf64_Ehdr h;
    std::memcpy(&h, file.data(), sizeof h);
    std::vector<Elf64_Shdr> sections(h.e_shnum);
    ASSERT_LE(h.e_shoff + sections.size() * sizeof(Elf64_Shdr), file.size());
    std::memcpy(sections.data(), file.data() + h.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    const char* names = file.data() + sections[h.e_shstrndx].sh_offset;
    bool found = false;
    for (const Elf64_Shdr& s : sections) {
      if (s.sh_type != SHT_NOBITS) {
        EXPECT_LE(s.sh_offset + s.sh_size, file.size());
      }
      if (std::string(names + s.sh_name) != ".tripod_weights") continue;
      found = true;
      EXPECT_EQ(s.sh_size, static_cast<uint64_t>(k.weights.size()));
      EXPECT_EQ(std::memcmp(file.data() + s.sh_offset + k.offset_b, k.bytes, 5), 0);
    }
    EXPECT_TRUE(found);
  }
}

TEST(ExternalWeights, HaveAHeaderThatNamesTheirContents) {
  const Folder folder;
  Constants k(100), same(100), other(101);
  const std::string header = external_weights_header(k.weights);
  EXPECT_EQ(header, external_weights_header(same.weights));
  EXPECT_NE(header, external_weights_header(other.weights));
  EXPECT_EQ((header.size() + 8) % 4096, 0u);
  write_external_weights(folder.file("w"), header, k.weights);
  const std::string file = content(folder.file("w"));
  uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  ASSERT_EQ(size, header.size());
  EXPECT_EQ(file.substr(8, size), header);
  ASSERT_EQ(file.size(), 8 + size + static_cast<uint64_t>(k.weights.size()));
  EXPECT_EQ(std::memcmp(file.data() + 8 + size + k.offset_a, k.numbers.data(), 400), 0);
  EXPECT_EQ(std::memcmp(file.data() + 8 + size + k.offset_b, k.bytes, 5), 0);
}

TEST(ExternalWeights, AFileThatCannotBeWrittenIsAnError) {
  Constants k(4);
  try {
    write_external_weights("/nowhere/at/all/w", external_weights_header(k.weights), k.weights);
    FAIL();
  } catch (const CompileError& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/at/all/w"), std::string::npos);
  }
}

}  // namespace
}  // namespace tripod
