// A protocol: two functions, from the body of a call to what it asks for, and from the events of an answer to bytes.
// Each stands in a folder of its own below protocols/ (HACKING.md says how one is added).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/ask.h"
#include "serve/body_field.h"
#include "serve/out.h"
#include "serve/refusal.h"

namespace situ::serve {

using Json = nlohmann::ordered_json;
class MediaFiles;

struct BodyRules {
  MediaFiles* files = nullptr;  // that bytes_of_media() has read for images by file: URLs; null: there are none
  bool strict = false;          // names that no body knows are refused (Refusal::Kind::kUnknown), not ignored
};

// What an answer, and each of its pieces, begins with.
struct Envelope {
  std::string id;                        // Protocol::new_id
  int64_t created = 0;                   // seconds since 1970
  std::string model;                     // as the caller named it
  std::optional<uint64_t> request = {};  // Ticket::number() of the first one; none: nothing runs any more
  std::string request_id = {};           // that the headers of the answer have
  std::string fingerprint = {};          // fingerprint_of() the model; "": it is not told
};

// A piece of a stream: the JSON of one event, and its name where the protocol names events.
struct Piece {
  std::string event, json;
};

// Writes the events of one answer as a stream.
class Writer {
 public:
  virtual ~Writer() = default;
  // Before the first event.
  virtual void open(std::vector<Piece>&) {}
  // Adds what may be sent to `pieces`. Behind Finished or a Refusal there is nothing more.
  virtual void put(const Out& out, std::vector<Piece>& pieces) = 0;
};

struct ErrorText {
  int status;  // of HTTP
  std::string json;
};

class Protocol {
 public:
  virtual ~Protocol() = default;

  // -- from the body
  // Fields that the body may have.
  virtual std::span<const BodyField* const> fields() const = 0;
  // Whether the prompt is a conversation, for which a model needs a chat template.
  virtual bool is_conversation(const Json& body) const = 0;
  virtual OrRefusal<Ask> read(const Json& body, const Model& model, const BodyRules& rules) const = 0;

  // -- to bytes
  virtual std::string new_id() const = 0;
  // All that is given must outlive the writer.
  virtual std::unique_ptr<Writer> writer(const Model& model, const Ask& ask, Envelope envelope) const = 0;
  virtual Json whole(const Model& model, const Ask& ask, const Envelope& envelope, const WholeAnswer& answer) const = 0;
  // `request_id`: that the headers of the answer have. Takes no memory for lists and objects: they take it when they
  // are destroyed too, and end the process where there is none.
  virtual ErrorText error(const Refusal& refusal, const std::string& request_id) const = 0;
  virtual const char* error_schema() const = 0;  // a JSON schema
  // The bytes of a piece among server-sent events; those behind the last piece of an answer; those of a stream that is
  // silent. An empty line behind a comment would end an event without data, which some parsers hand on.
  std::string frame(const Piece& piece) const;
  virtual const char* last_frame() const { return ""; }
  virtual const char* ping() const { return ": ping\n"; }
  virtual int64_t ping_seconds(int64_t wanted) const { return wanted; }  // of silence; `wanted`: the limit
  virtual const char* request_id_header() const { return "x-request-id"; }

  // A field that changes nothing, whatever it has.
  bool has_no_effect(std::string_view name) const;
};

// The protocol of a path, be it one of its calls or of no call: refusals are written in its form. Of paths below /v1
// these two characters and the slash before them may be missing.
const Protocol& protocol_of(std::string_view path);
// The protocol that reads the bodies of a path; null: none does.
const Protocol* reading_protocol(std::string_view path);

}  // namespace situ::serve
