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

/// Which of a device's two pools a buffer is in.
enum class BufferPlace : std::uint8_t {
  device,
  host,  ///< Device::allocate_host
};

/// Owns memory that a tracker counts. Move-only. Empty when default-made or of 0 bytes.
///
/// Memory:  `bytes` rounded up to 128, at a 128-byte boundary, from construction to destruction. It
///          may outlive the World that it was allocated from, and keeps that World's device until
///          then; a device or tracker that is no World's outlives it.
/// Errors:  OutOfMemory names what was asked and what is held by category.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, MemoryTracker& tracker, Category category, std::size_t bytes,
         std::string name, BufferUse use = BufferUse::whole,
         BufferPlace place = BufferPlace::device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] float* floats() const noexcept { return static_cast<float*>(data_); }
  /// As counted: a multiple of 128.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// What errors and records call it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void release() noexcept;

  Device* device_ = nullptr;
  MemoryTracker* tracker_ = nullptr;
  // The same, where they are shared.
  std::shared_ptr<Device> kept_device_;
  std::shared_ptr<MemoryTracker> kept_tracker_;
  Category category_ = Category::unattributed;
  BufferUse use_ = BufferUse::whole;
  BufferPlace place_ = BufferPlace::device;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
  std::string name_;
};

/// Cuts a Buffer into pieces that live as long as it does. Each piece starts on a 128-byte
/// boundary. Plan first (`need` per piece, summed), allocate once, then take in order.
class Arena {
 public:
  Arena() = default;
  explicit Arena(Buffer buffer) noexcept : buffer_{std::move(buffer)} {}

  /// Bytes that a piece of `bytes` uses up.
  [[nodiscard]] static std::size_t need(std::size_t bytes) noexcept;
  /// The next piece. ContractError if the arena is too small for it.
  [[nodiscard]] void* take(std::size_t bytes);

  [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes(); }
  [[nodiscard]] std::size_t taken_bytes() const noexcept { return taken_; }
  [[nodiscard]] void* data() const noexcept { return buffer_.data(); }

 private:
  Buffer buffer_;
  std::size_t taken_ = 0;
};

}  // namespace tessera
