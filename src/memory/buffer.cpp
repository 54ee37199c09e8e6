#include "tessera/memory/buffer.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

/// What ranks gather and reduce: arenas that communicators move data from and to.
bool is_communicated(Category category) {
  switch (category) {
    case Category::parameters:
    case Category::gradients:
    case Category::gather:
    case Category::reduce:
      return true;
    default:
      return false;
  }
}

void* allocate(Device& device, Category category, std::size_t bytes, BufferPlace place) {
  if (place == BufferPlace::host) { return device.allocate_host(bytes); }
  return is_communicated(category) ? device.allocate_communicated(bytes) : device.allocate(bytes);
}

void* allocate(Device& device, const MemoryTracker& tracker, Category category, std::size_t bytes,
               const std::string& name, BufferPlace place) {
  try {
    return allocate(device, category, bytes, place);
  } catch (const OutOfMemory& refusal) {
    throw OutOfMemory(fmt::format("no memory for {} ({}, {}): {}; this rank holds {}", name,
                                  to_string(category), format_bytes(bytes), refusal.what(),
                                  describe(tracker.report().live)));
  }
}

void free(Device& device, void* data, std::size_t bytes, BufferPlace place) noexcept {
  place == BufferPlace::device ? device.free(data, bytes) : device.free_host(data, bytes);
}

// A size above any machine's stays that, so that the device rejects it.
std::size_t counted(std::size_t bytes) {
  constexpr std::size_t most =
      std::numeric_limits<std::size_t>::max() / Device::kAlignment * Device::kAlignment;
  return bytes > most ? most : round_up(bytes, Device::kAlignment);
}

}  // namespace

Buffer::Buffer(Device& device, MemoryTracker& tracker, Category category, std::size_t bytes,
               std::string name, BufferUse use, BufferPlace place)
    : device_{&device},
      tracker_{&tracker},
      kept_device_{device.weak_from_this().lock()},
      kept_tracker_{tracker.weak_from_this().lock()},
      category_{category},
      use_{use},
      place_{place},
      name_{std::move(name)} {
  const std::size_t size = counted(bytes);
  if (size == 0) { return; }
  tracker.require_room(category, size, name_);
  void* const data = allocate(device, tracker, category, size, name_, place);
  try {
    tracker.add(category, size, name_, use);
  } catch (...) {
    free(device, data, size, place);
    throw;
  }
  data_ = data;
  bytes_ = size;
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_{other.device_},
      tracker_{other.tracker_},
      kept_device_{std::move(other.kept_device_)},
      kept_tracker_{std::move(other.kept_tracker_)},
      category_{other.category_},
      use_{other.use_},
      place_{other.place_},
      bytes_{std::exchange(other.bytes_, 0)},
      data_{std::exchange(other.data_, nullptr)},
      name_{std::move(other.name_)} {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    device_ = other.device_;
    tracker_ = other.tracker_;
    kept_device_ = std::move(other.kept_device_);
    kept_tracker_ = std::move(other.kept_tracker_);
    category_ = other.category_;
    use_ = other.use_;
    place_ = other.place_;
    bytes_ = std::exchange(other.bytes_, 0);
    data_ = std::exchange(other.data_, nullptr);
    name_ = std::move(other.name_);
  }
  return *this;
}

Buffer::~Buffer() {
  release();
}

void Buffer::release() noexcept {
  // Tests the size: a device that only counts returns no address.
  if (bytes_ == 0) { return; }
  free(*device_, data_, bytes_, place_);
  tracker_->remove(category_, bytes_, name_, use_);
  kept_device_.reset();
  kept_tracker_.reset();
  data_ = nullptr;
  bytes_ = 0;
}

std::size_t Arena::need(std::size_t bytes) noexcept {
  return counted(bytes);
}

void* Arena::take(std::size_t bytes) {
  const std::size_t left = taken_ < buffer_.bytes() ? buffer_.bytes() - taken_ : 0;
  if (need(bytes) > left) {
    throw ContractError(fmt::format("arena {} of {} has {} left; {} asked for", buffer_.name(),
                                    format_bytes(buffer_.bytes()), format_bytes(left),
                                    format_bytes(bytes)));
  }
  void* const piece = static_cast<std::byte*>(buffer_.data()) + taken_;
  taken_ += need(bytes);
  return piece;
}

}  // namespace tessera
