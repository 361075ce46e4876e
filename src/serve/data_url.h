// data: URLs and base64, as the fetch standard reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace situ::serve {

// Whether it begins with `data:`, in letters of any size.
bool is_data_url(std::string_view url);

// The bytes of a data: URL: `data:[TYPE][;PARAMETER]...[;base64],BODY`. White space around the URL does not count, nor
// line ends and tabs in it, nor what is behind `#`; escapes (%2B) are resolved. None: it has no comma, or its base64 is
// none.
std::optional<std::vector<uint8_t>> bytes_of_data_url(std::string_view url);

// Bytes of a base64 text ("forgiving-base64 decode"): ASCII white space in it does not count, its padding may be
// missing. None: it is no base64.
std::optional<std::vector<uint8_t>> from_base64(std::string_view text);

}  // namespace situ::serve
