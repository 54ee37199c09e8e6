#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/device/device.hpp"
#include "tessera/memory/category.hpp"
#include "tessera/memory/tracker.hpp"

namespace tessera {

/// The memory that a buffer is allocated in.
enum class BufferPlace : std::uint8_t {
  device,  ///< Device::allocate, or allocate_communicated for what ranks gather and reduce
  host,    ///< Device::allocate_host
};

/// Owns memory that a tracker counts. Move-only. A buffer is empty if it is default-constructed,
/// moved from, or of 0 bytes.
///
/// Memory:  `bytes` rounded up to a multiple of 128, at a 128-byte boundary, from construction to
///          destruction. A buffer may outlive the World that it was allocated from: it keeps that
///          World's device and tracker alive. Any other device or tracker must outlive the buffer.
/// Errors:  the constructor throws OutOfMemory with the size requested and the bytes that this rank
///          holds by category. Nothing is allocated or counted then.
class Buffer {
 public:
  /// An empty buffer.
  Buffer() = default;
  /// Allocates `bytes` in `place` of `device`, contents undefined, and counts them with `tracker`
  /// under `category`, as `use` says. `name` appears in errors and records.
  Buffer(Device& device, MemoryTracker& tracker, Category category, std::size_t bytes,
         std::string name, BufferUse use = BufferUse::whole,
         BufferPlace place = BufferPlace::device);
  /// Takes over the memory of `other`, which is empty afterwards.
  Buffer(Buffer&& other) noexcept;
  /// Frees this buffer's memory and takes over the memory of `other`, which is empty afterwards.
  Buffer& operator=(Buffer&& other) noexcept;
  /// Frees the memory.
  ~Buffer();

  /// Returns the address of the first byte; null if the buffer is empty.
  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Returns `data()` as a pointer to float.
  [[nodiscard]] float* floats() const noexcept { return static_cast<float*>(data_); }
  /// Returns the size as it is counted, a multiple of 128.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the name that errors and records use.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void release() noexcept;

  Device* device_ = nullptr;
  MemoryTracker* tracker_ = nullptr;
  // The same two, kept alive where they are shared.
  std::shared_ptr<Device> kept_device_;
  std::shared_ptr<MemoryTracker> kept_tracker_;
  Category category_ = Category::unattributed;
  BufferUse use_ = BufferUse::whole;
  BufferPlace place_ = BufferPlace::device;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
  std::string name_;
};

/// Owns a Buffer and cuts it into pieces that live as long as the arena. Each piece starts on a
/// 128-byte boundary. The caller adds up `need` over the pieces, allocates once, and takes them.
class Arena {
 public:
  /// An arena of 0 bytes.
  Arena() = default;
  /// Takes over `buffer`.
  explicit Arena(Buffer buffer) noexcept : buffer_{std::move(buffer)} {}

  /// Returns the bytes that a piece of `bytes` uses up: rounded up to a multiple of 128.
  [[nodiscard]] static std::size_t need(std::size_t bytes) noexcept;
  /// Returns the address of the next piece of `bytes`. Throws ContractError if the arena has too
  /// few bytes left.
  [[nodiscard]] void* take(std::size_t bytes);

  /// Returns the size of the whole buffer.
  [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes(); }
  /// Returns the bytes used up by the pieces taken so far.
  [[nodiscard]] std::size_t taken_bytes() const noexcept { return taken_; }
  /// Returns the start of the buffer, which is also the start of the first piece.
  [[nodiscard]] void* data() const noexcept { return buffer_.data(); }

 private:
  Buffer buffer_;
  std::size_t taken_ = 0;
};

}  // namespace tessera
