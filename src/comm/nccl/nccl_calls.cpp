#include "comm/nccl/nccl_calls.hpp"

#include <variant>

#include "comm/nccl/nccl_comm.hpp"
#include "device/cuda/cuda_check.hpp"

namespace tessera::comm::nccl {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::fp32:
      break;
  }
  return ncclFloat32;
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : ncclMax;
}

std::size_t count_of(std::int64_t elems) {
  return static_cast<std::size_t>(elems);
}

class Calls {
 public:
  Calls(ncclComm_t comm, const BatchPart& part) noexcept
      : comm_{comm}, stream_{part.stream}, rank_{part.rank}, ranks_{part.ranks} {}

  void operator()(const AllGather& op) const {
    if (op.shard.elems == 0) { return; }
    check(ncclAllGather(op.shard.data, op.full.data, count_of(op.shard.elems),
                        type_of(op.shard.dtype), comm_, stream_),
          comm_, "ncclAllGather");
  }
  void operator()(const ReduceScatter& op) const {
    if (op.shard.elems == 0) { return; }
    check(ncclReduceScatter(op.full.data, op.shard.data, count_of(op.shard.elems),
                            type_of(op.shard.dtype), op_of(op.op), comm_, stream_),
          comm_, "ncclReduceScatter");
  }
  void operator()(const AllReduce& op) const {
    if (op.data.elems == 0) { return; }
    check(ncclAllReduce(op.data.data, op.data.data, count_of(op.data.elems), type_of(op.data.dtype),
                        op_of(op.op), comm_, stream_),
          comm_, "ncclAllReduce");
  }
  void operator()(const Broadcast& op) const {
    if (op.data.elems == 0) { return; }
    check(ncclBroadcast(op.data.data, op.data.data, count_of(op.data.elems), type_of(op.data.dtype),
                        op.root, comm_, stream_),
          comm_, "ncclBroadcast");
  }
  void operator()(const Reduce& op) const {
    if (op.data.elems == 0) { return; }
    check(ncclReduce(op.data.data, op.data.data, count_of(op.data.elems), type_of(op.data.dtype),
                     op_of(op.op), op.root, comm_, stream_),
          comm_, "ncclReduce");
  }
  void operator()(const Gather& op) const {
    const std::size_t count = count_of(op.part.elems);
    if (count == 0) { return; }
    if (rank_ != op.root) {
      return check(ncclSend(op.part.data, count, type_of(op.part.dtype), op.root, comm_, stream_),
                   comm_, "ncclSend");
    }
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) { continue; }
      check(ncclRecv(op.full.slice(peer * op.part.elems, op.part.elems).data, count,
                     type_of(op.part.dtype), peer, comm_, stream_),
            comm_, "ncclRecv");
    }
  }

 private:
  ncclComm_t comm_;
  cudaStream_t stream_;
  int rank_;
  int ranks_;
};

void copy_own_part(const Gather& op, int rank, cudaStream_t stream) {
  if (rank != op.root || op.part.elems == 0) { return; }
  void* const to = op.full.slice(rank * op.part.elems, op.part.elems).data;
  if (to == op.part.data) { return; }
  cuda::check(cudaMemcpyAsync(to, op.part.data, op.part.bytes(), cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
}

}  // namespace

void copy_own_parts(const Batch& batch, const BatchPart& part) {
  for (const CommOp& op : batch.ops()) {
    if (const auto* const gather = std::get_if<Gather>(&op)) {
      copy_own_part(*gather, part.rank, part.stream);
    }
  }
}

void make_calls(const Batch& batch, ncclComm_t comm, const BatchPart& part) {
  const Calls calls{comm, part};
  for (const CommOp& op : batch.ops()) { std::visit(calls, op); }
}

}  // namespace tessera::comm::nccl
