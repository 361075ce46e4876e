// Calls that wait to be prepared.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <string>

#include "serve/call.h"

namespace situ::serve {

// Clients take turns; the calls of one keep their order.
class CallQueue {
 public:
  bool empty() const { return turns_.empty(); }
  void push(const std::shared_ptr<Call>& call) {
    const auto own =
        std::find_if(turns_.begin(), turns_.end(), [&](const Turn& t) { return t.client == call->client; });
    if (own == turns_.end())
      turns_.push_back({call->client, {call}});
    else
      own->calls.push_back(call);
  }
  // Precondition: there is one. Takes no memory.
  std::shared_ptr<Call> pop() {
    Turn& turn = turns_.front();
    std::shared_ptr<Call> call = std::move(turn.calls.front());
    turn.calls.pop_front();
    if (turn.calls.empty())
      turns_.pop_front();
    else
      turns_.splice(turns_.end(), turns_, turns_.begin());
    return call;
  }

 private:
  struct Turn {
    std::string client;
    std::deque<std::shared_ptr<Call>> calls;  // one at least
  };
  std::list<Turn> turns_;
};

}  // namespace situ::serve
