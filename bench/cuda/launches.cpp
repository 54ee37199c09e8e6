#include "bench/cuda/launches.hpp"

#include <memory>

#include "tools/measure/timing.hpp"

namespace tessera::bench {

LaunchCost measure_launches(Rig& rig, int rounds, int kernels) {
  constexpr std::int64_t kElems = 32;
  const Numbers from{rig, DType::fp32, kElems}, to{rig, DType::bf16, kElems};
  const auto enqueue = [&] {
    for (int i = 0; i < kernels; ++i) {
      rig.table().cast({to.values().data, kElems, DType::bf16},
                       {from.values().data, kElems, DType::fp32}, rig.stream());
    }
  };
  const std::unique_ptr<WorkGraph> graph = rig.device().make_graph();
  const OwnedEvent begin = rig.device().make_timed_event();
  const OwnedEvent end = rig.device().make_timed_event();
  Series host;
  Series device;
  for (int round = -1; round < rounds; ++round) {
    rig.stream().wait();
    const double start = now();
    enqueue();
    const double enqueued = seconds_since(start);
    rig.stream().wait();
    rig.stream().record(begin.get());
    graph->run(rig.stream(), {}, enqueue);
    rig.stream().record(end.get());
    rig.stream().wait();
    if (round < 0) { continue; }  // the first round creates what is created once
    host.seconds.push_back(enqueued / kernels);
    device.seconds.push_back(end.get().seconds_since(begin.get()) / kernels);
  }
  return {host.median(), device.median()};
}

}  // namespace tessera::bench
