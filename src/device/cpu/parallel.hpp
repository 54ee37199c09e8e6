#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cpu/worker_pool.hpp"
#include "tessera/device/device.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::device {

/// The number of threads that a loop on `stream` may use, including the stream's own: the device's
/// on its compute stream, 1 on others. Throws ContractError if `stream` is not a CPU device's.
[[nodiscard]] int threads_of(Stream stream);
/// The pool of these threads; null if there is only the stream's own.
[[nodiscard]] WorkerPool* pool_of(Stream stream);
/// Loops on `stream`, a stream of `device`, use the device's threads from now on. For a compute
/// stream with a thread of its own.
void lend_threads(Device& device, Stream stream);

/// Call it inside a task enqueued on `stream`: calls `body(chunk)` for chunks that together are [0,
/// items), on all of the stream's threads. Chunks begin at multiples of `grain`, the least items
/// for which a thread pays off; with one thread, or too few items, there is one chunk.
///
/// The caller ensures that results do not depend on the chunks. Errors: an exception of a chunk is
/// thrown here, and becomes the task's error.
template <class Body>
void parallel_for(Stream stream, std::int64_t items, std::int64_t grain, Body&& body) {
  if (items <= 0) { return; }
  WorkerPool* const pool = items > grain ? pool_of(stream) : nullptr;
  if (pool == nullptr) {
    body(Chunk{0, items, 0});
    return;
  }
  using Work = std::remove_reference_t<Body>;
  const auto call = [](void* work, const Chunk& chunk) { (*static_cast<Work*>(work))(chunk); };
  pool->for_chunks(items, grain, call, const_cast<std::remove_const_t<Work>*>(&body));
}

}  // namespace tessera::device
