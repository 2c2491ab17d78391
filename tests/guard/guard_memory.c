/* Memory that ends (or begins) at a page which may not be touched, for the tests: a read or write outside a buffer is a
 * crash. Preloaded (LD_PRELOAD), it also takes the place of posix_memalign, which is where a model.so gets its arenas,
 * scratch and staging memory from, and it counts what is allocated. One big reservation is handed out from the front;
 * freed blocks become unreadable and are not used again, so that use after free is a crash too. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define RESERVED ((size_t)1 << 42)
#define PAGE ((size_t)4096)
#define LARGE ((size_t)64 << 20) /* larger blocks are given back to the kernel when they are freed */

extern void __libc_free(void*);

static _Atomic(char*) region;
static atomic_size_t used;
static atomic_int at_begin;

static char* the_region(void) {
  char* r = atomic_load(&region);
  if (r) return r;
  char* made = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return NULL;
  if (atomic_compare_exchange_strong(&region, &r, made)) return made;
  munmap(made, RESERVED);
  return r;
}

/* Blocks lie at the end of their pages (the default), or at the begin. */
void guard_at_begin(int yes) { atomic_store(&at_begin, yes); }

void* guard_allocate(size_t alignment, size_t size) {
  char* base = the_region();
  size_t pages = (size + PAGE - 1) / PAGE * PAGE, unit = alignment > PAGE ? alignment : PAGE;
  if (!base || pages < size) return NULL;
  size_t at = atomic_fetch_add(&used, pages + 2 * unit + PAGE);
  uintptr_t start = ((uintptr_t)base + at + PAGE + unit - 1) / unit * unit; /* an unreadable page before it */
  if (at + pages + 3 * unit > RESERVED || mprotect((void*)start, pages, PROT_READ | PROT_WRITE) != 0) return NULL;
  size_t slack = atomic_load(&at_begin) ? 0 : (pages - size) / alignment * alignment;
  return (void*)(start + slack);
}

static int is_guarded(const void* p) {
  uintptr_t base = (uintptr_t)atomic_load(&region);
  return base && (uintptr_t)p >= base && (uintptr_t)p < base + RESERVED;
}

int posix_memalign(void** out, size_t alignment, size_t size) {
  void* p = guard_allocate(alignment, size ? size : 1);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}

void free(void* p) {
  if (!is_guarded(p)) __libc_free(p);
}
