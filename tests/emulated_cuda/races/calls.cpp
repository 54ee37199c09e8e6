// The calls that -fsanitize=thread compiles into kernels, in place of the thread sanitizer's own.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulated_cuda/races/checker.hpp"

namespace {

using namespace emulated_cuda::races;

void follow(Access access, Kind kind, const void* data, std::size_t bytes, const void* code) {
  if (Checker* const check = checker()) { check->access(access, kind, data, bytes, code); }
}

void follow_copy(void* to, const void* from, std::size_t bytes, const void* code) {
  follow(Access::read, Kind::plain, from, bytes, code);
  follow(Access::write, Kind::plain, to, bytes, code);
}

void follow_update(const volatile void* data, std::size_t bytes, const void* code) {
  if (Checker* const check = checker()) {
    check->access(Access::read, Kind::atomic, const_cast<const void*>(data), bytes, code);
    check->access(Access::write, Kind::atomic, const_cast<const void*>(data), bytes, code);
  }
}

}  // namespace

#define TESSERA_HIDDEN extern "C" __attribute__((visibility("hidden")))
#define TESSERA_CODE __builtin_return_address(0)

#define TESSERA_ACCESS(name, access, kind, bytes)    \
  TESSERA_HIDDEN void __tsan_##name(void* data) {    \
    follow(access, kind, data, bytes, TESSERA_CODE); \
  }
#define TESSERA_ACCESSES(bytes)                                                    \
  TESSERA_ACCESS(read##bytes, Access::read, Kind::plain, bytes)                    \
  TESSERA_ACCESS(write##bytes, Access::write, Kind::plain, bytes)                  \
  TESSERA_ACCESS(unaligned_read##bytes, Access::read, Kind::plain, bytes)          \
  TESSERA_ACCESS(unaligned_write##bytes, Access::write, Kind::plain, bytes)        \
  /* Volatile accesses of a GPU are relaxed atomic ones. */                        \
  TESSERA_ACCESS(volatile_read##bytes, Access::read, Kind::atomic, bytes)          \
  TESSERA_ACCESS(volatile_write##bytes, Access::write, Kind::atomic, bytes)        \
  TESSERA_ACCESS(unaligned_volatile_read##bytes, Access::read, Kind::plain, bytes) \
  TESSERA_ACCESS(unaligned_volatile_write##bytes, Access::write, Kind::plain, bytes)
TESSERA_ACCESSES(1)
TESSERA_ACCESSES(2)
TESSERA_ACCESSES(4)
TESSERA_ACCESSES(8)
TESSERA_ACCESSES(16)

TESSERA_HIDDEN void __tsan_init() {}
TESSERA_HIDDEN void __tsan_func_entry(void* /*caller*/) {}
TESSERA_HIDDEN void __tsan_func_exit() {}
TESSERA_HIDDEN void __tsan_vptr_read(void** /*at*/) {}
TESSERA_HIDDEN void __tsan_vptr_update(void** /*at*/, void* /*value*/) {}

TESSERA_HIDDEN void __tsan_read_range(void* data, std::size_t bytes) {
  follow(Access::read, Kind::plain, data, bytes, TESSERA_CODE);
}
TESSERA_HIDDEN void __tsan_write_range(void* data, std::size_t bytes) {
  follow(Access::write, Kind::plain, data, bytes, TESSERA_CODE);
}

TESSERA_HIDDEN void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  follow_copy(to, from, bytes, TESSERA_CODE);
  return std::memcpy(to, from, bytes);
}
TESSERA_HIDDEN void* __tsan_memmove(void* to, const void* from, std::size_t bytes) noexcept {
  follow_copy(to, from, bytes, TESSERA_CODE);
  return std::memmove(to, from, bytes);
}
TESSERA_HIDDEN void* __tsan_memset(void* to, int value, std::size_t bytes) noexcept {
  follow(Access::write, Kind::plain, to, bytes, TESSERA_CODE);
  return std::memset(to, value, bytes);
}
// What memory_calls.hpp makes of calls of these functions.
TESSERA_HIDDEN void* emulated_cuda_races_memcpy(void* to, const void* from,
                                                std::size_t bytes) noexcept {
  follow_copy(to, from, bytes, TESSERA_CODE);
  return std::memcpy(to, from, bytes);
}
TESSERA_HIDDEN void* emulated_cuda_races_memmove(void* to, const void* from,
                                                 std::size_t bytes) noexcept {
  follow_copy(to, from, bytes, TESSERA_CODE);
  return std::memmove(to, from, bytes);
}
TESSERA_HIDDEN void* emulated_cuda_races_memset(void* to, int value, std::size_t bytes) noexcept {
  follow(Access::write, Kind::plain, to, bytes, TESSERA_CODE);
  return std::memset(to, value, bytes);
}

// Atomic operations: relaxed, as CUDA's are; fences order them.
#define TESSERA_ATOMIC_UPDATE(bits, name, builtin)                                  \
  TESSERA_HIDDEN std::uint##bits##_t __tsan_atomic##bits##_##name(                  \
      volatile std::uint##bits##_t* at, std::uint##bits##_t value, int /*order*/) { \
    follow_update(at, sizeof *at, TESSERA_CODE);                                    \
    return builtin(at, value, __ATOMIC_SEQ_CST);                                    \
  }
#define TESSERA_ATOMIC_EXCHANGE(bits, name)                                                       \
  TESSERA_HIDDEN int __tsan_atomic##bits##_compare_exchange_##name(                               \
      volatile std::uint##bits##_t* at, std::uint##bits##_t* expected, std::uint##bits##_t value, \
      int /*order*/, int /*order_of_failure*/) {                                                  \
    follow_update(at, sizeof *at, TESSERA_CODE);                                                  \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,              \
                                       __ATOMIC_SEQ_CST)                                          \
               ? 1                                                                                \
               : 0;                                                                               \
  }
#define TESSERA_ATOMICS(bits)                                                                   \
  TESSERA_HIDDEN std::uint##bits##_t __tsan_atomic##bits##_load(                                \
      const volatile std::uint##bits##_t* at, int /*order*/) {                                  \
    follow(Access::read, Kind::atomic, const_cast<const std::uint##bits##_t*>(at), sizeof *at,  \
           TESSERA_CODE);                                                                       \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                               \
  }                                                                                             \
  TESSERA_HIDDEN void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at,             \
                                                  std::uint##bits##_t value, int /*order*/) {   \
    follow(Access::write, Kind::atomic, const_cast<const std::uint##bits##_t*>(at), sizeof *at, \
           TESSERA_CODE);                                                                       \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                             \
  TESSERA_ATOMIC_UPDATE(bits, exchange, __atomic_exchange_n)                                    \
  TESSERA_ATOMIC_UPDATE(bits, fetch_add, __atomic_fetch_add)                                    \
  TESSERA_ATOMIC_UPDATE(bits, fetch_sub, __atomic_fetch_sub)                                    \
  TESSERA_ATOMIC_UPDATE(bits, fetch_and, __atomic_fetch_and)                                    \
  TESSERA_ATOMIC_UPDATE(bits, fetch_or, __atomic_fetch_or)                                      \
  TESSERA_ATOMIC_EXCHANGE(bits, strong)                                                         \
  TESSERA_ATOMIC_EXCHANGE(bits, weak)
TESSERA_ATOMICS(8)
TESSERA_ATOMICS(16)
TESSERA_ATOMICS(32)
TESSERA_ATOMICS(64)

TESSERA_HIDDEN void __tsan_atomic_thread_fence(int order) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (Checker* const check = checker()) {
    check->pass_fence(order == __ATOMIC_SEQ_CST ? Scope::device : Scope::block);
  }
}
TESSERA_HIDDEN void __tsan_atomic_signal_fence(int /*order*/) {}
