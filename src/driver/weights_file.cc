#include "driver/weights_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace tripod {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargeSection = 1 << 28;  // SHF_X86_64_LARGE, which elf.h does not know yet

uint64_t up_to(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// A file that is written at given offsets; what is not written reads as zeros.
class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("cannot write");
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(uint64_t at, const void* data, uint64_t size) {
    const char* p = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = pwrite(fd_, p, std::min<uint64_t>(size, 1 << 30), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("cannot write");
      p += n, at += static_cast<uint64_t>(n), size -= static_cast<uint64_t>(n);
    }
  }
  void read(uint64_t at, void* data, uint64_t size) {
    if (pread(fd_, data, size, static_cast<off_t>(at)) != static_cast<ssize_t>(size)) fail("cannot read");
  }
  uint64_t size() {
    struct stat s = {};
    if (fstat(fd_, &s) != 0) fail("cannot read");
    return static_cast<uint64_t>(s.st_size);
  }
  void resize(uint64_t size) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("cannot write");
  }
  // Errors of the disk that only show when the data leaves memory, on some file systems.
  void finish() {
    const int fd = std::exchange(fd_, -1);
    if (close(fd) != 0) fail("cannot write");
  }

 private:
  [[noreturn]] void fail(const char* what) const { throw CompileError({}, fmt::format("{} {}: {}", what, path_, std::strerror(errno))); }
  std::string path_;
  int fd_;
};

void write_pieces(File& f, uint64_t at, const host::Weights& weights) {
  for (const host::Weights::Piece& p : weights.pieces())
    f.write(at + static_cast<uint64_t>(p.offset), p.data, static_cast<uint64_t>(p.size));
}

Elf64_Shdr section(uint32_t name, uint32_t type, uint64_t flags, uint64_t offset, uint64_t size, uint64_t align) {
  Elf64_Shdr s{};
  s.sh_name = name, s.sh_type = type, s.sh_flags = flags, s.sh_offset = offset, s.sh_size = size, s.sh_addralign = align;
  return s;
}

}  // namespace

void write_weights_placeholder(const std::string& path) {
  // Sections: null, .tripod_weights, .symtab, .strtab, .shstrtab, .note.GNU-stack.
  static const char kNames[] = "\0.tripod_weights\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
  static const char kSymbols[] = "\0tp_weights";
  const uint64_t data = kPage, symtab = data + 8, strtab = symtab + 2 * sizeof(Elf64_Sym);
  const uint64_t shstrtab = strtab + sizeof kSymbols, table = up_to(shstrtab + sizeof kNames, 8);
  File f(path, O_RDWR | O_CREAT | O_TRUNC);
  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64, h.e_ident[EI_DATA] = ELFDATA2LSB, h.e_ident[EI_VERSION] = EV_CURRENT;
  h.e_type = ET_REL, h.e_machine = EM_X86_64, h.e_version = EV_CURRENT, h.e_ehsize = sizeof h;
  h.e_shoff = table, h.e_shentsize = sizeof(Elf64_Shdr), h.e_shnum = 6, h.e_shstrndx = 4;
  f.write(0, &h, sizeof h);
  Elf64_Sym symbols[2]{};
  symbols[1].st_name = 1, symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), symbols[1].st_other = STV_HIDDEN;
  symbols[1].st_shndx = 1, symbols[1].st_size = 1;
  f.write(symtab, symbols, sizeof symbols);
  f.write(strtab, kSymbols, sizeof kSymbols);
  f.write(shstrtab, kNames, sizeof kNames);
  Elf64_Shdr sections[6]{};
  // Large: the linker then puts it in a segment of its own behind everything (link.cc).
  sections[1] = section(1, SHT_PROGBITS, SHF_ALLOC | kLargeSection, data, 1, kPage);
  sections[2] = section(17, SHT_SYMTAB, 0, symtab, sizeof symbols, 8);
  sections[2].sh_link = 3, sections[2].sh_info = 1, sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3] = section(25, SHT_STRTAB, 0, strtab, sizeof kSymbols, 1);
  sections[4] = section(33, SHT_STRTAB, 0, shstrtab, sizeof kNames, 1);
  sections[5] = section(43, SHT_PROGBITS, 0, table, 0, 1);
  f.write(table, sections, sizeof sections);
  f.finish();
}

void embed_weights(const std::string& shared_object, const host::Weights& weights) {
  File f(shared_object, O_RDWR);
  Elf64_Ehdr h;
  f.read(0, &h, sizeof h);
  std::vector<Elf64_Phdr> segments(h.e_phnum);
  std::vector<Elf64_Shdr> sections(h.e_shnum);
  f.read(h.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr));
  f.read(h.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr));
  std::vector<char> names(sections[h.e_shstrndx].sh_size);
  f.read(sections[h.e_shstrndx].sh_offset, names.data(), names.size());

  Elf64_Shdr* ours = nullptr;
  for (Elf64_Shdr& s : sections)
    if (std::strcmp(&names[s.sh_name], ".tripod_weights") == 0) ours = &s;
  TRIPOD_CHECK(ours && ours->sh_size == 1, "the linked file has no placeholder of the weights");
  Elf64_Phdr* segment = nullptr;
  for (Elf64_Phdr& p : segments) {
    TRIPOD_CHECK(p.p_type != PT_LOAD || p.p_vaddr <= ours->sh_addr, "something is loaded behind the weights");
    if (p.p_type == PT_LOAD && p.p_vaddr == ours->sh_addr) segment = &p;
  }
  TRIPOD_CHECK(segment && segment->p_filesz == 1 && ours->sh_offset % kPage == 0, "the weights have no segment of their own");

  // What follows in the file is not loaded (section names and headers): it moves behind the weights.
  const uint64_t data = ours->sh_offset, tail = data + 1, size = static_cast<uint64_t>(weights.size());
  std::vector<char> rest(f.size() - tail);
  f.read(tail, rest.data(), rest.size());
  const uint64_t moved = up_to(size - 1, 16);  // keeps the alignment of all offsets
  for (Elf64_Shdr& s : sections)
    if (s.sh_offset >= tail) s.sh_offset += moved;
  h.e_shoff += moved;
  ours->sh_size = segment->p_filesz = segment->p_memsz = size;
  f.resize(tail);
  write_pieces(f, data, weights);
  f.write(tail + moved, rest.data(), rest.size());
  f.write(0, &h, sizeof h);
  f.write(h.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr));
  f.write(h.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr));
  f.finish();
}

std::string external_weights_header(const host::Weights& weights) {
  std::string json = fmt::format(
      R"({{"__metadata__":{{"tripod":"{}"}},"weights":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}})",
      weights.identity(), weights.size(), weights.size());
  json.resize(up_to(json.size() + sizeof(uint64_t), kPage) - sizeof(uint64_t), ' ');
  return json;
}

void write_external_weights(const std::string& path, const std::string& header, const host::Weights& weights) {
  File f(path, O_RDWR | O_CREAT | O_TRUNC);
  const uint64_t size = header.size();
  f.write(0, &size, sizeof size);
  f.write(sizeof size, header.data(), size);
  f.resize(sizeof size + size + static_cast<uint64_t>(weights.size()));
  write_pieces(f, sizeof size + size, weights);
  f.finish();
}

}  // namespace tripod
