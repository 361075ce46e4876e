#include "cli/hub/listing.h"

#include <nlohmann/json.hpp>

#include "base/one_line.h"
#include "cli/hub/url.h"
#include "text/json_file.h"

namespace situ::hub {
namespace {

using HubJson = nlohmann::json;

constexpr size_t kMostBytes = size_t{32} << 20;  // of one answer
constexpr size_t kMostFiles = 200'000, kMostPages = 1000;

std::string string_of(const HubJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

Status untrusted(const std::string& what, const std::string& why) {
  return one_line(Status::error(Code::kBadFile, what + ": the hub says " + why));
}

std::string api(const HubClient& client, const ModelName& name) {
  return client.endpoint() + "/api/models/" + encode(name.repository, "/");
}

Result<HubJson> json_answer(const HubClient& client, const ModelName& name, HubAnswer& answer) {
  SITU_RETURN_IF_ERROR(check_status(client, name, answer, ""));
  const Result<std::string> text = answer.text(kMostBytes);
  if (!text.is_ok()) return text.status().with_context(name.repository);
  return parse_json(*text, name.repository + ": the hub's answer");
}

// The address of 'Link: <...>; rel="next"', or "".
std::string next_page(const std::string& link) {
  for (size_t begin = 0; (begin = link.find('<', begin)) != std::string::npos;) {
    const size_t end = link.find('>', begin);
    if (end == std::string::npos) return "";
    const std::string rest = link.substr(end, link.find('<', end) - end);
    if (rest.find("rel=\"next\"") != std::string::npos || rest.find("rel=next") != std::string::npos)
      return link.substr(begin + 1, end - begin - 1);
    begin = end;
  }
  return "";
}

// One entry of the listing. Errors name the path.
Status take_entry(const std::string& repository, const HubJson& entry, HubFiles* files) {
  if (!entry.is_object()) return untrusted(repository, "a file that is no object");
  if (string_of(entry, "type") == "directory") return Status::ok();
  const std::string path = string_of(entry, "path");
  if (!is_inner_path(path)) return untrusted(repository, "a file '" + path + "', which is no path in a repository");
  HubFile file;
  file.git_id = file.digest = string_of(entry, "oid");
  const auto lfs = entry.find("lfs");
  const bool large = lfs != entry.end() && lfs->is_object();
  if (large) file.digest = string_of(*lfs, "oid");
  if (file.digest.starts_with("sha256:")) file.digest = file.digest.substr(7);
  file.xet_hash = string_of(entry, "xetHash");
  if (!is_hex(file.xet_hash, 64)) file.xet_hash = "";
  const HubJson& of = large && lfs->contains("size") ? *lfs : entry;
  const auto size = of.find("size");
  if (!is_hex(file.digest, large ? 64 : 40) || !is_hex(file.git_id, 40))
    return untrusted(repository, "'" + file.digest + "' of " + path + ", which is no digest");
  if (size == of.end() || !size->is_number_unsigned() || size->get<uint64_t>() > uint64_t{1} << 60)
    return untrusted(repository, "no good size of " + path);
  file.size = size->get<int64_t>();
  files->emplace(path, std::move(file));
  return Status::ok();
}

}  // namespace

Status check_status(const HubClient& client, const ModelName& name, const HubAnswer& answer, const std::string& path) {
  const int status = answer.status();
  if (status == 200 || status == 206 || (status >= 300 && status < 400)) return Status::ok();
  if (const std::string from = origin_of(answer.url()); from != origin_of(client.endpoint()))
    return one_line(Status::error(name.repository + ": " + path + ": " + from + " answers " + std::to_string(status)));
  const std::string code = answer.header("x-error-code"), page = client.endpoint() + "/" + name.repository;
  const auto refuse = [&](const std::string& why) {
    return one_line(Status::error(Code::kInvalidArgument, name.repository + ": " + why));
  };
  if (code == "RevisionNotFound") return refuse("there is no revision '" + name.revision + "'");
  if (code == "EntryNotFound") return refuse("there is no file '" + path + "'");
  if (code == "GatedRepo" || (status == 403 && code != "RepoNotFound"))
    return refuse("the repository is gated: ask for access at " + page + ", and give a token of yours in HF_TOKEN");
  if (code == "RepoNotFound" || status == 401 || status == 404)
    return refuse(std::string("there is no such repository, or it is private: ") +
                  (client.has_token() ? "the token of HF_TOKEN cannot read it" : "a token goes into HF_TOKEN") + " (" +
                  page + ")");
  return Status::error(name.repository + ": the hub answers " + std::to_string(status));
}

Result<std::string> ask_commit(const HubClient& client, const ModelName& name) {
  if (is_hex(name.revision, 40)) return name.revision;
  Result<HubAnswer> answer = client.get(api(client, name) + "/revision/" + encode(name.revision), 0, name.repository);
  if (!answer.is_ok()) return answer.status();
  const Result<HubJson> json = json_answer(client, name, *answer);
  if (!json.is_ok()) return json.status();
  const std::string commit = json->is_object() ? string_of(*json, "sha") : "";
  if (!is_hex(commit, 40)) return untrusted(name.repository, "'" + commit + "', which is no commit");
  return commit;
}

Result<HubFiles> ask_files(const HubClient& client, const ModelName& name, const std::string& commit) {
  HubFiles files;
  std::string url = api(client, name) + "/tree/" + commit + "?recursive=true&expand=false";
  for (size_t page = 0; !url.empty(); ++page) {
    if (page == kMostPages)
      return untrusted(name.repository, "more than " + std::to_string(kMostPages) + " pages of files");
    Result<HubAnswer> answer = client.get(url, 0, name.repository);
    if (!answer.is_ok()) return answer.status();
    const Result<HubJson> json = json_answer(client, name, *answer);
    if (!json.is_ok()) return json.status();
    if (!json->is_array()) return untrusted(name.repository, "files that are no list");
    for (const HubJson& entry : *json) SITU_RETURN_IF_ERROR(take_entry(name.repository, entry, &files));
    if (files.size() > kMostFiles)
      return untrusted(name.repository, "more than " + std::to_string(kMostFiles) + " files");
    const std::string next = next_page(answer->header("link"));
    if (next.empty()) break;
    Result<std::string> joined = join_url(answer->url(), next);
    if (!joined.is_ok()) return joined.status().with_context(name.repository);
    if (origin_of(*joined) != origin_of(client.endpoint()))
      return untrusted(name.repository, "that files are listed at '" + *joined + "', which is another server");
    url = std::move(*joined);
  }
  return files;
}

std::string file_url(const HubClient& client, const ModelName& name, const std::string& commit,
                     const std::string& path) {
  return client.endpoint() + "/" + encode(name.repository, "/") + "/resolve/" + commit + "/" + encode(path, "/");
}

Status check_digest(const HubClient& client, const ModelName& name, const std::string& commit, const std::string& path,
                    const HubFile& file) {
  const std::string what = name.repository + ": " + path;
  Result<HubAnswer> answer = client.head(file_url(client, name, commit, path), what);
  if (!answer.is_ok()) return answer.status();
  SITU_RETURN_IF_ERROR(check_status(client, name, *answer, path));
  const std::string of = answer->header("x-repo-commit");
  if (!of.empty() && of != commit) return untrusted(what, "'" + of + "', which is not the commit " + commit);
  std::string etag = answer->header("x-linked-etag");
  if (etag.empty()) etag = answer->header("etag");
  if (etag.starts_with("W/")) etag = etag.substr(2);
  if (etag.size() >= 2 && etag.starts_with('"') && etag.ends_with('"')) etag = etag.substr(1, etag.size() - 2);
  if (etag.empty() && answer->status() >= 300) return Status::ok();  // an address elsewhere; the listing has the digest
  if (!is_hex(etag, 40) && !is_hex(etag, 64)) return untrusted(what, "'" + etag + "', which is no digest");
  if (etag != file.digest) return untrusted(what, "two digests, " + file.digest + " and " + etag);
  return Status::ok();
}

}  // namespace situ::hub
