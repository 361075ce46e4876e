// The end of a text at the first stop string in it, found while the text still comes in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace situ {

// The match that ends first ends the text; of those that end at the same byte the one that begins first. What is before
// it is the text; nothing of a stop string ever leaves push(). How a text is cut into pieces makes no difference.
//
// Pieces that begin and end with whole characters give pieces that do, if every stop string begins with a whole
// character. Method: Knuth-Morris-Pratt, one automaton a string; cost per byte and string: constant on average.
class StopStrings {
 public:
  // No string may be empty. Without strings every piece passes as it is.
  explicit StopStrings(std::vector<std::string> strings);

  // The text that became certain with this piece: all but what could be the beginning of a stop string. Empty once
  // stopped.
  std::string push(std::string_view piece);
  // What was held back, when the text ends without a stop string.
  std::string finish();
  bool stopped() const { return !found_.empty(); }
  const std::string& found() const { return found_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // [i]: length of the longest proper border of the first i + 1 bytes
    size_t matched = 0;            // so many bytes of `text` end the text so far
    void feed(char byte);
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::string found_;  // the stop string that has come; "": none
};

}  // namespace situ
