#include "emulated_cuda/nccl/wire.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace emulated_nccl {
namespace {

constexpr int kLookMs = 5;

/// The abstract socket namespace, which leaves no files.
sockaddr_un address_of(const std::string& name, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

template <class Attempt>
Line::End move(int handle, short events, std::size_t bytes, const Line::GoesOn& goes_on,
               const Attempt& attempt) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = attempt(done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) { return Line::End::lost; }
    if (!goes_on()) { return Line::End::stopped; }
    pollfd watched{handle, events, 0};
    (void)::poll(&watched, 1, kLookMs);
  }
  return Line::End::done;
}

}  // namespace

Line::~Line() {
  if (handle_ >= 0) { ::close(handle_); }
}

Line::End Line::send(const void* data, std::size_t bytes, const GoesOn& goes_on) {
  const auto* const from = static_cast<const char*>(data);
  return move(handle_, POLLOUT, bytes, goes_on, [&](std::size_t done) {
    return ::send(handle_, from + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

Line::End Line::receive(void* data, std::size_t bytes, const GoesOn& goes_on) {
  auto* const to = static_cast<char*>(data);
  return move(handle_, POLLIN, bytes, goes_on, [&](std::size_t done) {
    return ::recv(handle_, to + done, bytes - done, MSG_DONTWAIT);
  });
}

Line listen_as(const std::string& name) {
  Line line{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(name, bytes);
  const bool listens =
      ::bind(line.handle(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      ::listen(line.handle(), 64) == 0;
  return listens ? std::move(line) : Line{};
}

Line accept_one(const Line& listener) {
  return Line{::accept4(listener.handle(), nullptr, nullptr, SOCK_CLOEXEC)};
}

Line connect_to(const std::string& name) {
  Line line{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(name, bytes);
  if (::connect(line.handle(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    return {};
  }
  return line;
}

std::size_t size_of(std::int32_t type) {
  switch (type) {
    case ncclFloat64:
      return 8;
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 0;  // not used here
  }
}

std::uint64_t sent(const Call& call, int rank, int ranks) {
  switch (call.kind) {
    case Kind::reduce_scatter:
      return call.count * static_cast<std::uint64_t>(ranks);
    case Kind::broadcast:
      return rank == call.peer ? call.count : 0;
    case Kind::receive:
      return 0;
    default:
      return call.count;
  }
}

std::uint64_t given(const Call& call, int rank, int ranks) {
  switch (call.kind) {
    case Kind::all_gather:
      return call.count * static_cast<std::uint64_t>(ranks);
    case Kind::reduce:
      return rank == call.peer ? call.count : 0;
    case Kind::send:
      return 0;
    default:
      return call.count;
  }
}

}  // namespace emulated_nccl
