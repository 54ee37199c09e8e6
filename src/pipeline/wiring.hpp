#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// What goes one way from a rank to another, or, where both are the same rank, from a stage to the
/// next on it. Items are named by the action that makes them.
struct Link {
  Work way = Work::forward;  ///< forward: outputs of stages; backward: gradients of their inputs
  int from = 0;
  int to = 0;
  std::vector<Action> items;  ///< in the order in which `from` makes them
  int from_buffers = 0;  ///< in which `from` writes items and they wait to leave; 0 on one rank
  int to_buffers = 0;    ///< in which `to` holds items

  [[nodiscard]] bool local() const noexcept { return from == to; }
};

/// One item of a link.
struct Item {
  int link = -1;
  int number = 0;  ///< in Link::items

  /// Whether there is one.
  [[nodiscard]] explicit operator bool() const noexcept { return link >= 0; }
};

/// An action with what it reads and makes.
struct Step {
  Action action;
  int slot = 0;          ///< Turn::slot
  Item input;            ///< of the stage
  Item output;           ///< of the stage, in a forward pass
  Item output_gradient;  ///< in what makes the gradient of the stage's input
  Item input_gradient;   ///< likewise

  /// What it is the first to read.
  [[nodiscard]] Item takes() const noexcept {
    return action.work == Work::forward ? input : output_gradient;
  }
  [[nodiscard]] Item gives() const noexcept {
    return action.work == Work::forward ? output : input_gradient;
  }
  /// Whether it is the last to read its stage's input.
  [[nodiscard]] bool ends() const noexcept {
    return action.work == Work::backward || action.work == Work::backward_weight;
  }
};

/// How many items a rank has asked for of each of the links that come to it, before each of its
/// steps: all that it has needed so far, and one more, which is then under way while it computes.
class Asked {
 public:
  explicit Asked(std::size_t links) : needed_(links) {}

  /// Notes that the rank comes to `step`.
  void come_to(const Step& step);
  /// Returns the number of items that have been asked for of link `number`.
  [[nodiscard]] int of(int number, const Link& link) const;

 private:
  std::vector<int> needed_;  // by link
};

/// What a rank's host does next in a step.
struct Move {
  enum class Kind : std::uint8_t {
    ask,   ///< asks for the next item of a link
    make,  ///< makes a step
    send,  ///< sends the next item of a link
  };
  Kind kind = Kind::make;
  int number = 0;  ///< of the link, or of the step
};

/// A schedule's links, and its actions with what goes over them.
struct Wiring {
  std::vector<Link> links;
  std::vector<std::vector<Step>> ranks;       ///< by rank, in order
  std::vector<std::vector<Move>> in_concert;  ///< by rank: its moves, see `wire`

  /// Returns the number of buffers of a boundary's size on `rank`.
  [[nodiscard]] int buffers(int rank) const;
};

/// Returns the wiring of a schedule that has passed `check`. Its numbers of buffers are the least
/// with which every rank has what Asked says, and no rank waits for ever
/// (docs/decisions/0031-pipelines-run-schedules.md).
///
/// `in_concert` gives each rank its part of one list of all steps and transfers: an ask and a send
/// of an item are one entry, which both ranks come to at once. It is for transports on which the
/// hosts of both ranks may have to meet, and for devices that compute behind their hosts.
[[nodiscard]] Wiring wire(const Schedule& schedule);

/// Returns a rank's moves where asking and sending wait for nobody: it asks as soon as Asked says,
/// and sends at once. It is for hosts that compute themselves.
[[nodiscard]] std::vector<Move> moves_at_once(const Wiring& wiring, int rank);

/// Divides `links` so that no rank is at an end of two links of one class and way, and a link and
/// the one that brings its gradients back are of one class. Returns the class of each link; -1 for
/// local ones.
[[nodiscard]] std::vector<int> classes_of(const std::vector<Link>& links);

}  // namespace tessera::pipeline
