#include "comm/nccl/nccl_communicator.hpp"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "comm/rendezvous/frame.hpp"
#include "device/cuda/cuda_check.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nccl {
namespace {

constexpr int kCommStatus = 4;

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

/// Makes NCCL's call for each entry of a batch, within a group. Forms in place are NCCL's own:
/// it knows them by the addresses.
class Calls {
 public:
  Calls(ncclComm_t comm, cudaStream_t stream, int rank, int ranks) noexcept
      : comm_{comm}, stream_{stream}, rank_{rank}, ranks_{ranks} {}

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

/// The root's own part of a gather, which NCCL does not move.
void copy_own_part(const Gather& op, int rank, cudaStream_t stream) {
  if (rank != op.root || op.part.elems == 0) { return; }
  void* const to = op.full.slice(rank * op.part.elems, op.part.elems).data;
  if (to == op.part.data) { return; }
  cuda::check(cudaMemcpyAsync(to, op.part.data, op.part.bytes(), cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
}

}  // namespace

NcclLink::~NcclLink() {
  watchdog.reset();
  if (arenas) { arenas->end(); }
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclLink> link, int channel,
                                   const Instruments& instruments)
    : Communicator{link->group->rank(), link->group->size()},
      link_{std::move(link)},
      channel_{*link_->channels[static_cast<std::size_t>(channel)]},
      number_{channel},
      instruments_{instruments},
      begin_ns_{std::make_shared<std::int64_t>(0)} {}

void NcclCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  cuda::CudaStream& cuda = cuda::cuda_stream(stream);
  try {
    encode(batch, code_);
    const std::uint64_t sequence = link_->group->note_batch(channel_.kind(), code_);
    watch_begin(sequence, stream);
    enqueue(batch, cuda);
    watch_end(batch, sequence, stream);
    channel_.track(sequence, call_text(describe(batch), channel_.name(), sequence), cuda);
  } catch (const CommError& error) {
    // NCCL may have failed here because another rank has: that one is to be named.
    fail_after_control(*link_->group, error.what());
    try {
      link_->group->check_alive();
    } catch (const std::exception&) {
      cuda.end_with(std::current_exception());
      throw;
    }
    throw;
  } catch (const std::exception& error) {  // of this rank alone: the peers must not wait for it
    link_->group->abort(fmt::format("rank {}: {}", rank(), error.what()), kCommStatus);
    cuda.end_with(std::current_exception());
    throw;
  }
}

void NcclCommunicator::enqueue(const Batch& batch, cuda::CudaStream& stream) {
  cudaStream_t const handle = stream.open();
  for (const CommOp& op : batch.ops()) {
    if (const auto* const gather = std::get_if<Gather>(&op)) {
      copy_own_part(*gather, rank(), handle);
    }
  }
  channel_.comm().issue([&](ncclComm_t comm) {
    const Calls calls{comm, handle, rank(), size()};
    for (const CommOp& op : batch.ops()) { std::visit(calls, op); }
  });
}

void NcclCommunicator::watch_begin(std::uint64_t sequence, Stream stream) {
  if (instruments_.delays) {
    stream.call([instruments = instruments_, rank = rank(), sequence] {
      inject_delay(instruments, rank, sequence, Moment::before);
    });
  }
  if (instruments_.recorder != nullptr) {
    stream.call([begin = begin_ns_] { *begin = trace::now_ns(); });
  }
}

void NcclCommunicator::watch_end(const Batch& batch, std::uint64_t sequence, Stream stream) {
  if (instruments_.recorder != nullptr) {
    stream.call(
        [instruments = instruments_, batch, rank = rank(), size = size(), begin = begin_ns_] {
          record_collectives(instruments, batch, rank, size, *begin);
        });
  }
  if (instruments_.delays) {
    stream.call([instruments = instruments_, rank = rank(), sequence] {
      inject_delay(instruments, rank, sequence, Moment::after);
    });
  }
}

std::vector<std::string> NcclCommunicator::do_exchange(std::string message) {
  const CallKind kind = number_ == 0 ? CallKind::gather_text : CallKind::reduce_text;
  JobGroup& group = *link_->group;
  if (!link_->arenas) { return group.exchange(kind, std::move(message)); }
  std::string both =
      PayloadWriter{}.text(link_->arenas->offer()).text(std::exchange(message, {})).take();
  std::vector<std::string> texts = group.exchange(kind, std::move(both));
  std::vector<std::string> offers;
  for (std::string& text : texts) {
    PayloadReader reader{text};
    offers.push_back(reader.text());
    text = reader.text();
  }
  link_->arenas->settle(offers);
  return texts;
}

std::unique_ptr<Communicator> NcclCommunicator::do_split(const RankGroup& group) {
  throw ConfigError{
      fmt::format("split \"{}\": ranks that talk through nccl cannot be split", group.name)};
}

void NcclCommunicator::do_abort(std::string_view reason) noexcept {
  link_->group->abort(reason, kCommStatus);
}

// Kernels of NCCL that have been enqueued are not taken back one by one: the channel ends.
void NcclCommunicator::do_withdraw() noexcept {
  channel_.withdraw();
}

}  // namespace tessera::nccl
