# The runtime is linked INTO every model.so: compiled here, one object a source, with the flags that keep its undefined
# symbols to libc (no exceptions, no RTTI, no libstdc++, no unique symbols), combined into one relocatable runtime.o,
# and embedded in the compiler (tripod_runtime_blob). tripod_runtime_host is the same code as a library, for unit tests.
#
# The commands are written out because the options of the build (sanitizers, -O0) are not for code that ships in models.
file(GLOB RUNTIME_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/runtime/*.cc)
set(RUNTIME_DIR ${CMAKE_CURRENT_BINARY_DIR}/runtime)
file(MAKE_DIRECTORY ${RUNTIME_DIR})

set(RUNTIME_FLAGS -std=c++20 -O2 -g0 -fPIC -ffp-contract=off -fno-exceptions -fno-rtti
  -fvisibility=hidden -fno-threadsafe-statics -fno-stack-protector -ffunction-sections -fdata-sections
  -fasynchronous-unwind-tables -Wall -Wextra -Werror
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -I${CMAKE_CURRENT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND RUNTIME_FLAGS -fno-gnu-unique)
else()  # clang makes no unique symbols, and bcmp of memcmp
  list(APPEND RUNTIME_FLAGS -fno-builtin-bcmp)
endif()
# What a CPU without AVX2 may reach: the entry points, up to the check.
set(RUNTIME_BASELINE cpu entry errors tvm_ffi_entry)

set(RUNTIME_OBJECTS)
foreach(source ${RUNTIME_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  set(march x86-64-v3)
  if(name IN_LIST RUNTIME_BASELINE)
    set(march x86-64)
  endif()
  set(object ${RUNTIME_DIR}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${CMAKE_CXX_COMPILER} ${RUNTIME_FLAGS} -march=${march}
            -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "runtime: ${name}.cc")
  list(APPEND RUNTIME_OBJECTS ${object})
endforeach()

set(RUNTIME_O ${RUNTIME_DIR}/runtime.o)
add_custom_command(OUTPUT ${RUNTIME_O}
  COMMAND ${LLD} -r -o ${RUNTIME_O} ${RUNTIME_OBJECTS}
  DEPENDS ${RUNTIME_OBJECTS} COMMENT "runtime.o")
add_custom_target(tripod_runtime_object DEPENDS ${RUNTIME_O})

# const unsigned char tripod_runtime_o[]; const size_t tripod_runtime_o_size; (runtime/blob.h)
set(RUNTIME_BLOB ${RUNTIME_DIR}/runtime_blob.cc)
file(CONFIGURE OUTPUT ${RUNTIME_BLOB} @ONLY CONTENT [[
#include <cstddef>
__asm__(
    ".section .rodata\n"
    ".global tripod_runtime_o\n"
    ".balign 64\n"
    "tripod_runtime_o: .incbin \"@RUNTIME_O@\"\n"
    "tripod_runtime_o_end: .byte 0\n"
    ".balign 8\n"
    ".global tripod_runtime_o_size\n"
    "tripod_runtime_o_size: .quad tripod_runtime_o_end - tripod_runtime_o\n"
    ".text\n");
]])
set_source_files_properties(${RUNTIME_BLOB} PROPERTIES OBJECT_DEPENDS ${RUNTIME_O})
add_library(tripod_runtime_blob STATIC ${RUNTIME_BLOB})
target_include_directories(tripod_runtime_blob PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
add_dependencies(tripod_runtime_blob tripod_runtime_object)

find_package(Threads REQUIRED)
add_library(tripod_runtime_host STATIC ${RUNTIME_SOURCES})
target_include_directories(tripod_runtime_host PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(tripod_runtime_host PRIVATE -march=x86-64-v3 -fno-exceptions -fno-rtti)
target_link_libraries(tripod_runtime_host PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(tripod_runtime_host PUBLIC TRIPOD_RUNTIME_O="${RUNTIME_O}"
  TRIPOD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(tripod_runtime_host tripod_runtime_object)
