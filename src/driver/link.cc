#include "driver/link.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>

#include "base/diagnostic.h"

LLD_HAS_DRIVER(elf)

// lld refers to the initialisers of every target LLVM was built with; Tripod links X86 only.
#define TRIPOD_ABSENT_TARGET(T)                  \
  extern "C" void LLVMInitialize##T##Target() {} \
  extern "C" void LLVMInitialize##T##TargetInfo() {} \
  extern "C" void LLVMInitialize##T##TargetMC() {}   \
  extern "C" void LLVMInitialize##T##AsmPrinter() {} \
  extern "C" void LLVMInitialize##T##AsmParser() {}
TRIPOD_ABSENT_TARGET(AArch64)
TRIPOD_ABSENT_TARGET(AMDGPU)
TRIPOD_ABSENT_TARGET(ARM)
TRIPOD_ABSENT_TARGET(AVR)
TRIPOD_ABSENT_TARGET(BPF)
TRIPOD_ABSENT_TARGET(Hexagon)
TRIPOD_ABSENT_TARGET(Lanai)
TRIPOD_ABSENT_TARGET(LoongArch)
TRIPOD_ABSENT_TARGET(M68k)
TRIPOD_ABSENT_TARGET(Mips)
TRIPOD_ABSENT_TARGET(MSP430)
TRIPOD_ABSENT_TARGET(NVPTX)
TRIPOD_ABSENT_TARGET(PowerPC)
TRIPOD_ABSENT_TARGET(RISCV)
TRIPOD_ABSENT_TARGET(Sparc)
TRIPOD_ABSENT_TARGET(SystemZ)
TRIPOD_ABSENT_TARGET(VE)
TRIPOD_ABSENT_TARGET(WebAssembly)
TRIPOD_ABSENT_TARGET(XCore)
TRIPOD_ABSENT_TARGET(Xtensa)

namespace tripod {

// lld maps what it writes, or ends the process over a write that fails: on a full disk that is a signal or an exit we
// cannot catch. So the room is asked for first; what is linked is no larger than its parts and some headers.
static void check_room(const std::vector<std::string>& objects, const std::string& output) {
  off_t most = 64 << 10;
  for (const std::string& o : objects) most += static_cast<off_t>(std::filesystem::file_size(o));
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0777);
  const int error = fd < 0 ? errno : posix_fallocate(fd, 0, most);
  if (fd >= 0) close(fd);
  std::remove(output.c_str());
  if (error) throw CompileError({}, "cannot write " + output + ": " + std::strerror(error));
}

void link_shared_object(const std::vector<std::string>& objects, const std::string& output) {
  std::vector<const char*> args = {"ld.lld", "-shared", "--no-undefined-version", "--gc-sections", "--build-id=none",
                                   "--hash-style=gnu", "-z", "now", "-z", "noexecstack",
                                   // Large read-only sections (the weights) last, in a segment of their own.
                                   "-z", "lrodata-after-bss",
                                   "--no-mmap-output-file", "-o", output.c_str()};
  for (const std::string& o : objects) args.push_back(o.c_str());
  check_room(objects, output);
  std::string messages;
  llvm::raw_string_ostream err(messages);
  const lld::DriverDef drivers[] = {{lld::Gnu, &lld::elf::link}};
  const lld::Result r = lld::lldMain(args, llvm::nulls(), err, drivers);
  if (r.retCode != 0) throw InternalError("linking failed: " + messages);
}

}  // namespace tripod
