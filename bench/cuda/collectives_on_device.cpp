#include "bench/cuda/collectives_on_device.hpp"

namespace tessera::bench {
namespace {

// With this many repeats the host's time for one wait is negligible.
constexpr int kRepeats = 10;

class DeviceBuffers : public CollectiveBuffers {
 public:
  DeviceBuffers(World& world, std::int64_t elems)
      : world_{world},
        whole_{buffer(elems, "whole")},
        shard_{buffer(elems / world.size(), "shard")},
        from_{buffer(2 * elems, "from")},
        to_{buffer(2 * elems, "to")} {}
  [[nodiscard]] float* whole() noexcept override { return static_cast<float*>(whole_.data()); }
  [[nodiscard]] float* shard() noexcept override { return static_cast<float*>(shard_.data()); }
  void copy(double bytes, int repeats) override {
    const Stream stream = world_.gather_channel().stream;
    for (int i = 0; i < repeats; ++i) {
      world_.device().copy(to_.data(), from_.data(), static_cast<std::size_t>(bytes / 2), stream);
    }
    stream.wait();
  }

 private:
  [[nodiscard]] Buffer buffer(std::int64_t elems, const char* name) {
    const std::size_t bytes = static_cast<std::size_t>(elems) * sizeof(float);
    Buffer made = world_.allocate(Category::workspace, bytes, name);
    const Stream stream = world_.gather_channel().stream;
    world_.device().fill(made.data(), 0x3C, bytes, stream);
    stream.wait();
    return made;
  }

  World& world_;
  Buffer whole_, shard_, from_, to_;
};

}  // namespace

CollectivePlace device_memory() {
  WorldOptions options;
  options.device = make_cuda_device()->kind();
  return {.world = options,
          .limit = "device copies",
          .repeats = kRepeats,
          .make = [](World& world, std::int64_t elems) {
            return std::make_unique<DeviceBuffers>(world, elems);
          }};
}

}  // namespace tessera::bench
