#include "driver/elf_object.h"

#include <elf.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "base/diagnostic.h"

namespace tripod {
namespace {

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
    if (!file_) throw CompileError({}, "cannot write " + path);
  }
  ~Writer() { std::fclose(file_); }
  void bytes(const void* p, size_t n) {
    if (n && std::fwrite(p, 1, n, file_) != n) throw CompileError({}, "writing the weights failed: is the disk full?");
    at_ += n;
  }
  void pad_to(uint64_t offset) {
    static const std::vector<char> kZeros(1 << 16, 0);
    while (at_ < offset) bytes(kZeros.data(), std::min<uint64_t>(kZeros.size(), offset - at_));
  }
  uint64_t at() const { return at_; }

 private:
  std::FILE* file_;
  uint64_t at_ = 0;
};

Elf64_Shdr section(uint32_t name, uint32_t type, uint64_t flags, uint64_t offset, uint64_t size, uint64_t align) {
  Elf64_Shdr s{};
  s.sh_name = name, s.sh_type = type, s.sh_flags = flags, s.sh_offset = offset, s.sh_size = size, s.sh_addralign = align;
  return s;
}

}  // namespace

void write_weights_object(const std::string& path, const host::Weights& weights) {
  // Sections: null, .tripod_weights, .symtab, .strtab, .shstrtab, .note.GNU-stack.
  static const char kNames[] = "\0.tripod_weights\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
  static const char kSymbols[] = "\0tp_weights";
  constexpr uint64_t kPage = 4096;
  Writer w(path);
  const uint64_t data = kPage, data_end = data + static_cast<uint64_t>(weights.size());
  const uint64_t symtab = (data_end + 7) / 8 * 8, strtab = symtab + 2 * sizeof(Elf64_Sym);
  const uint64_t shstrtab = strtab + sizeof(kSymbols), table = (shstrtab + sizeof(kNames) + 7) / 8 * 8;

  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64, h.e_ident[EI_DATA] = ELFDATA2LSB, h.e_ident[EI_VERSION] = EV_CURRENT;
  h.e_type = ET_REL, h.e_machine = EM_X86_64, h.e_version = EV_CURRENT, h.e_ehsize = sizeof h;
  h.e_shoff = table, h.e_shentsize = sizeof(Elf64_Shdr), h.e_shnum = 6, h.e_shstrndx = 4;
  w.bytes(&h, sizeof h);
  for (const host::Weights::Piece& p : weights.pieces()) {
    w.pad_to(data + static_cast<uint64_t>(p.offset));
    w.bytes(p.data, static_cast<size_t>(p.size));
  }
  w.pad_to(symtab);
  Elf64_Sym symbols[2]{};
  symbols[1].st_name = 1, symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), symbols[1].st_other = STV_HIDDEN;
  symbols[1].st_shndx = 1, symbols[1].st_size = static_cast<uint64_t>(weights.size());
  w.bytes(symbols, sizeof symbols);
  w.bytes(kSymbols, sizeof kSymbols);
  w.bytes(kNames, sizeof kNames);
  w.pad_to(table);
  Elf64_Shdr sections[6]{};
  sections[1] = section(1, SHT_PROGBITS, SHF_ALLOC, data, static_cast<uint64_t>(weights.size()), kPage);
  sections[2] = section(17, SHT_SYMTAB, 0, symtab, sizeof symbols, 8);
  sections[2].sh_link = 3, sections[2].sh_info = 1, sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3] = section(25, SHT_STRTAB, 0, strtab, sizeof kSymbols, 1);
  sections[4] = section(33, SHT_STRTAB, 0, shstrtab, sizeof kNames, 1);
  sections[5] = section(43, SHT_PROGBITS, 0, table, 0, 1);
  w.bytes(sections, sizeof sections);
}

}  // namespace tripod
