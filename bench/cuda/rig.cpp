#include "bench/cuda/rig.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/stream_state.hpp"
#include "kernels/support/workspace.hpp"
#include "kernels/work/logged_table.hpp"

namespace tessera::bench {

Rig::Rig()
    : device_{make_cuda_device()},
      stream_{device_->make_compute_stream()},
      current_{stream_.get()},
      table_{&kernels::table_of(device_->kind())} {
  const std::size_t bytes = kernels::stream_workspace_bytes(device_->kind());
  workspace_ = device_->allocate(bytes);
  stream().state()->lend({workspace_, bytes});
}

Rig::~Rig() {
  stream_ = {};
  device_->free(workspace_, kernels::stream_workspace_bytes(device_->kind()));
}

trace::KernelWork Rig::work_of(const std::function<void()>& enqueue) {
  trace::WorkLog log;
  const std::unique_ptr<Device> counting = make_meta_device();
  const OwnedStream counted = counting->make_compute_stream();
  counted.get().state()->log_to(&log, log.add_stream("compute"));
  current_ = counted.get();
  table_ = &kernels::logged_table(device_->kind());
  enqueue();
  table_ = &kernels::table_of(device_->kind());
  current_ = stream_.get();
  return log.kernels().at(0);
}

Case Rig::repeated(std::string name, double bytes, double flops,
                   const std::function<void()>& enqueue, Stream on) {
  const auto seconds = [&] {
    on.wait();
    const double begin = now();
    enqueue();
    on.wait();
    return seconds_since(begin);
  };
  static_cast<void>(seconds());  // loads libraries and makes plans
  const double repeats = std::clamp(std::ceil(kLeastSeconds / seconds()), 1.0, kMostRepeats);
  return {std::move(name), bytes * repeats, flops * repeats,
          [=] {
            for (double i = 0; i < repeats; ++i) { enqueue(); }
            on.wait();
          },
          repeats};
}

std::shared_ptr<void> device_bytes(Rig& rig, std::size_t bytes) {
  Device& device = rig.device();
  return {device.allocate(bytes), [&device, bytes](void* data) { device.free(data, bytes); }};
}

std::shared_ptr<void> on_device(Rig& rig, std::span<const std::byte> from) {
  std::shared_ptr<void> to = device_bytes(rig, from.size());
  rig.device().copy_in(to.get(), from.data(), from.size(), rig.stream());
  rig.stream().wait();
  return to;
}

Numbers::Numbers(Rig& rig, DType dtype, std::int64_t elems, float stddev)
    : memory_{device_bytes(rig, static_cast<std::size_t>(elems) * size_of(dtype))}, dtype_{dtype} {
  rig.table().fill_normal(values(), kernels::MasterPart::value, {.seed = 1, .id = 0}, 0, stddev,
                          elems, rig.stream());
}

}  // namespace tessera::bench
