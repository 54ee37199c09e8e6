// The NCCL functions that the module uses, between processes of one machine: README.md.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "emulated_cuda/nccl/comm.hpp"
#include "emulated_cuda/nccl/registrations.hpp"
#include "emulated_cuda/nccl/root.hpp"

using namespace emulated_nccl;

/// The target of a handle.
struct ncclComm {
  explicit ncclComm(std::shared_ptr<Comm> comm_) : comm{std::move(comm_)} {
    const auto bytes = tessera::environment("TESSERA_EMULATED_NCCL_TAKES");
    if (bytes && cudaMalloc(&taken, std::stoull(*bytes)) != cudaSuccess) { taken = nullptr; }
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
  ~ncclComm() { (void)cudaFree(taken); }

  std::shared_ptr<Comm> comm;
  void* taken = nullptr;  // device memory
};

namespace {

/// Calls of a thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  std::shared_ptr<Comm> comm;
  cudaStream_t stream = nullptr;
  std::vector<Work> works;
};
thread_local Group group;

ncclResult_t end_group() {
  const Group whole = std::exchange(group, Group{});
  return whole.comm ? whole.comm->enqueue(whole.works, whole.stream) : ncclSuccess;
}

/// Whether NCCL would move data directly between the rank's buffers, without staging.
bool is_direct(const Comm& comm, const Work& work) {
  const std::size_t item = size_of(work.call.type);
  const std::size_t from = sent(work.call, comm.rank(), comm.ranks()) * item;
  const std::size_t to = given(work.call, comm.rank(), comm.ranks()) * item;
  return (from == 0 || is_registered(&comm, work.from, from)) &&
         (to == 0 || is_registered(&comm, work.to, to));
}

/// A group has one communicator and one stream, which is all that the module needs.
ncclResult_t add(ncclComm_t handle, cudaStream_t stream, Work work) {
  if (handle == nullptr || size_of(work.call.type) == 0) { return ncclInvalidArgument; }
  if (!handle->comm->started()) { return ncclInvalidUsage; }
  const bool direct = is_direct(*handle->comm, work);
  work.call.registered = direct ? 1 : 0;
  if (handle->comm->ranks() > 1) { count_call(direct, work.call.count * size_of(work.call.type)); }
  if (group.comm && (group.comm != handle->comm || group.stream != stream)) {
    return ncclInvalidUsage;
  }
  group.comm = handle->comm;
  group.stream = stream;
  group.works.push_back(work);
  return group.depth > 0 ? ncclSuccess : end_group();
}

Call call_of(Kind kind, std::size_t count, ncclDataType_t type, ncclRedOp_t op = ncclSum,
             int peer = 0) {
  Call call;
  call.kind = kind;
  call.type = type;
  call.op = op;
  call.peer = peer;
  call.count = count;
  return call;
}

}  // namespace

std::shared_ptr<Comm> emulated_nccl::comm_of(ncclComm_t handle) {
  return handle->comm;
}

ncclComm_t emulated_nccl::make_handle(std::shared_ptr<Comm> comm) {
  return new ncclComm{std::move(comm)};
}

ncclResult_t ncclGetVersion(int* version) {
  const auto other = tessera::environment("TESSERA_EMULATED_NCCL_VERSION");
  *version = other ? std::stoi(*other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  const std::string name =
      "tessera-emulated-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(++made);
  *id = {};
  name.copy(id->internal, sizeof id->internal - 1);
  return start_root(name) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= ranks || config == nullptr) { return ncclInvalidArgument; }
  if (config->blocking != 0) { return ncclInvalidUsage; }  // the double is nonblocking only
  if (!take_limits(config->minCTAs, config->maxCTAs)) { return ncclInvalidArgument; }
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) { return ncclUnhandledCudaError; }
  *handle = make_handle(std::make_shared<Comm>(rank, ranks, device));
  (*handle)->comm->start(id.internal);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  if (handle == nullptr || made == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
    return ncclInvalidArgument;
  }
  if (!handle->comm->started() || group.depth > 0) { return ncclInvalidUsage; }
  if (config != nullptr && config->blocking != 0) { return ncclInvalidUsage; }
  if (config != nullptr && !take_limits(config->minCTAs, config->maxCTAs)) {
    return ncclInvalidArgument;
  }
  *made = nullptr;
  handle->comm->split({color, key}, made);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* result) {
  *result = handle->comm->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t /*handle*/) {
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  check_none_registered(handle->comm.get());
  handle->comm->wait_for_graphs();
  handle->comm->wait_for_own_thread();
  handle->comm->end();
  delete handle;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  handle->comm->abort();
  handle->comm->wait_for_own_thread();
  handle->comm->wait_for_graphs();
  handle->comm->wait_for_device();
  forget_registered(handle->comm.get());
  delete handle;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array<const char*, 8> kTexts{"no error",
                                              "unhandled cuda error",
                                              "unhandled system error",
                                              "internal error",
                                              "invalid argument",
                                              "invalid usage",
                                              "remote process exited or there was a network error",
                                              "NCCL operation in progress"};
  return result >= 0 && result < std::ssize(kTexts) ? kTexts[static_cast<std::size_t>(result)]
                                                    : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t handle) {
  const bool same_gpu = handle != nullptr && handle->comm->state() == ncclInvalidUsage;
  return same_gpu ? "Duplicate GPU detected" : "";
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) { return ncclInvalidUsage; }
  return --group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::all_gather, count, type), from, to});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::reduce_scatter, count, type, op), from, to});
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::all_reduce, count, type, op), from, to});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::broadcast, count, type, ncclSum, root), from, to});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::reduce, count, type, op, root), from, to});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::send, count, type, ncclSum, peer), from, nullptr});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {call_of(Kind::receive, count, type, ncclSum, peer), nullptr, to});
}
