#include "comm/nccl/stream_marks.hpp"

#include <cstddef>
#include <utility>

#include "device/cuda/cuda_check.hpp"

namespace tessera::comm::nccl {
namespace {

constexpr std::size_t kBlock = 1024;

}  // namespace

StreamMark StreamMarks::set(cuda::CudaStream& stream) {
  cudaStream_t const handle = stream.open();
  StreamMark mark;
  if (stream.capturing()) {
    were_captured_ = true;
    mark.graph = stream.capture()->fate();
    mark.flag = take_flag();
    *mark.flag = 0;
    cuda::launch_raise(mark.flag, handle);
  } else {
    mark.event = take_event();
    cuda::check(cudaEventRecord(mark.event.get(), handle), "cudaEventRecord");
  }
  return mark;
}

bool StreamMarks::is_reached(const StreamMark& mark) {
  if (mark.flag != nullptr) {
    return cuda::is_raised(mark.flag) || *mark.graph == cuda::GraphFate::dropped;
  }
  // Any other error of the device is reported by streams that are waited for.
  return cudaEventQuery(mark.event.get()) != cudaErrorNotReady;
}

void StreamMarks::take_back(StreamMark mark) {
  const std::scoped_lock lock{mutex_};
  if (mark.flag != nullptr) { return flags_.push_back(mark.flag); }
  events_.push_back(std::move(mark.event));
}

cuda::EventHandle StreamMarks::take_event() {
  {
    const std::scoped_lock lock{mutex_};
    if (!events_.empty()) {
      cuda::EventHandle event = std::move(events_.back());
      events_.pop_back();
      return event;
    }
  }
  return cuda::make_event_handle();
}

std::uint32_t* StreamMarks::take_flag() {
  const auto take = [this]() -> std::uint32_t* {
    if (flags_.empty()) { return nullptr; }
    std::uint32_t* const flag = flags_.back();
    flags_.pop_back();
    return flag;
  };
  {
    const std::scoped_lock lock{mutex_};
    if (std::uint32_t* const flag = take()) { return flag; }
  }
  cuda::PinnedFlags block{kBlock};
  const std::scoped_lock lock{mutex_};
  flags_.reserve((blocks_.size() + 1) * kBlock);  // so that all can be returned
  for (std::size_t i = 0; i < kBlock; ++i) { flags_.push_back(block.at(i)); }
  blocks_.push_back(std::move(block));
  return take();
}

}  // namespace tessera::comm::nccl
