#include "comm/nccl/nccl_communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "comm/rank_split.hpp"
#include "comm/stream_watch.hpp"
#include "device/cuda/cuda_capture.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm::nccl {
namespace {

/// Unique among the job's groups: the ranks that agree on `number` have not seen it used.
std::uint64_t number_of(int number, const RankGroup& group) {
  return static_cast<std::uint64_t>(number) << 32U |
         static_cast<std::uint64_t>(group.members.front());
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclLink> link,
                                   std::shared_ptr<NcclChannel> channel,
                                   const Instruments& instruments)
    : Communicator{link->control->rank(), link->control->size()},
      link_{std::move(link)},
      channel_{std::move(channel)},
      instruments_{instruments} {}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclLink> link, const RankGroup& group,
                                   NcclSplit split, const Instruments& instruments)
    : Communicator{group.rank, static_cast<int>(group.members.size()), group.members},
      link_{std::move(link)},
      channel_{std::move(split.channel)},
      taken_{std::move(split.taken)},
      instruments_{instruments} {
  link_->enter(channel_, size());
}

// The communicators of all ranks end together, with what they share.
NcclCommunicator::~NcclCommunicator() {
  if (channel_->series().group == kAllRanks) { return; }
  const bool unwinds = std::uncaught_exceptions() > uncaught_;
  link_->leave({std::move(taken_), std::move(channel_)}, unwinds ? Owner::unwinds : Owner::goes_on);
}

void NcclCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  cuda::CudaStream& cuda = cuda::cuda_stream(stream);
  try {
    encode(batch, code_);
    const std::uint64_t sequence = link_->control->note_batch(channel_->series(), code_);
    const StreamWatch watch{instruments_, stream, job_rank(rank()), sequence};
    channel_->announce(sequence, call_text(describe(batch), channel_->name(), sequence), cuda);
    enqueue(batch, cuda);
    watch.end(batch, rank(), size());
    channel_->track(cuda);
  } catch (...) {
    const std::exception_ptr failure = fail(std::current_exception());
    channel_->retract();  // now: by it the watchdog could find which ranks are missing
    cuda.end_with(failure);
    std::rethrow_exception(failure);
  }
}

/// Tells the other ranks why this one cannot go on, and returns the reason.
std::exception_ptr NcclCommunicator::fail(const std::exception_ptr& cause) {
  TcpControlPlane& control = *link_->control;
  try {
    std::rethrow_exception(cause);
  } catch (const CommError& error) {
    // NCCL may have failed here because another rank did: the error must name that one.
    fail_after_control(control, error.what());
    try {
      control.check_alive();
    } catch (const std::exception&) { return std::current_exception(); }
  } catch (
      const std::exception& error) {  // an error of this rank only: the peers must not wait for it
    control.abort_for(error);
  }
  return cause;
}

void NcclCommunicator::enqueue(const Batch& batch, cuda::CudaStream& stream) {
  const BatchPart part{rank(), size(), stream.open()};
  copy_own_parts(batch, part);
  channel_->issue([&](ncclComm_t comm) { make_calls(batch, comm, part); });
}

// Registering arenas concerns all ranks: they agree on it where all of them exchange texts.
std::vector<std::string> NcclCommunicator::do_exchange(std::string message) {
  const CallSeries& series = channel_->series();
  const CallSeries texts_of{
      series.kind == CallKind::gather_batch ? CallKind::gather_text : CallKind::reduce_text,
      series.group};
  TcpControlPlane& control = *link_->control;
  if (!link_->arenas || series.group != kAllRanks) {
    return control.exchange(texts_of, std::move(message));
  }
  std::string both =
      PayloadWriter{}.text(link_->arenas->offer()).text(std::exchange(message, {})).take();
  std::vector<std::string> texts = control.exchange(texts_of, std::move(both));
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
  check_can_split(group.name);
  if (cuda::is_capturing(link_->device)) {
    throw ContractError{
        fmt::format("split \"{}\": a graph is being captured and cannot hold a new communicator; "
                    "split before the capture",
                    group.name)};
  }
  const int number = agree_on_number(group.name);
  try {
    return std::unique_ptr<NcclCommunicator>{
        new NcclCommunicator{link_, group, make_split(group, number_of(number, group)),
                             instruments_.of_split(next_split_++)}};
  } catch (...) { std::rethrow_exception(fail(std::current_exception())); }
}

// NCCL cannot split a communicator with work in progress.
NcclSplit NcclCommunicator::make_split(const RankGroup& group, std::uint64_t number) {
  channel_->wait_until_idle(*link_->control);
  link_->control->add_group(number, group.name, group.members);
  const std::size_t free_before = link_->free_bytes();
  std::unique_ptr<NcclComm> comm = channel_->comm().split(
      group.group, group.rank, fmt::format("{} {}", group.name, group.group));
  CountedMemory taken = link_->count_taken(free_before, "nccl " + group.name);
  const CallSeries series{channel_->series().kind, number};
  return {std::move(taken), std::make_shared<NcclChannel>(std::move(comm), series, group.name)};
}

// Ranks may have been in groups that were split a different number of times.
int NcclCommunicator::agree_on_number(const std::string& name) {
  const int number = agree_on_highest(
      link_->next_group, name, [this](std::string text) { return do_exchange(std::move(text)); },
      [this](int rank) { return do_name(job_rank(rank)); });
  link_->next_group = number + 1;
  return number;
}

std::string NcclCommunicator::do_name(int job_rank) const {
  return link_->control->names().of(job_rank);
}

void NcclCommunicator::do_abort(std::string_view reason) noexcept {
  link_->control->abort(reason);
}

// NCCL kernels that are enqueued cannot be withdrawn one by one: the channel ends.
void NcclCommunicator::do_withdraw() noexcept {
  channel_->withdraw();
}

}  // namespace tessera::comm::nccl
