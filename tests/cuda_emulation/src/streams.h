#pragma once

// Streams, events, and the capture of streams into graphs.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

namespace lipgrad_emulation {

enum class NodeKind : unsigned char { kernel, copy, fill, event, library, free };

// A piece of work: what a stream runs, or a node of a graph.
struct Node {
  NodeKind kind;
  const char* what;
  std::function<void()> run;
};

struct Stream;

// Streams that are being captured together.
struct Capture {
  struct Member {
    std::shared_ptr<Stream> stream;
    std::uint64_t nodes = 0,
                  joined = 0;  // nodes from it, and up to which of them others waited for it
  };
  std::shared_ptr<Stream> origin;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool ended = false, invalid = false;
  std::vector<Member> members;  // without the origin
  std::vector<Node> nodes;

  Member* member(const Stream* stream);
};

struct Stream {
  int device = 0;
  bool nonblocking = false;  // does not wait for the legacy stream, nor that for it
  bool legacy = false;
  std::deque<Node> queue;
  std::uint64_t queued = 0, done = 0;
  std::shared_ptr<Capture> capture;
};

// The stream behind a handle; of null, the current device's legacy stream.
std::shared_ptr<Stream> state_of(cudaStream_t stream);
// Adds work to the stream: runs it at once (LIPGRAD_EMULATION_LAZY=0), queues it, or captures it.
cudaError_t push(const std::shared_ptr<Stream>& stream, Node node);
// Runs what was queued, up to the given number of pieces since the stream was made.
void drain(const std::shared_ptr<Stream>& stream, std::uint64_t up_to = ~std::uint64_t{0});
void drain_all();
void drain_device(int device);

// Calls that may not be made while this thread captures (or another one does in global mode): an
// error, and the captures are invalid from then on.
cudaError_t unsafe_in_capture(const char* call);
// The same for waiting for a stream that is being captured.
cudaError_t refuse_if_captured(const Stream& stream, const char* call);
cudaError_t invalidate(Capture& capture, cudaError_t error, const std::string& why);
bool device_is_captured(int device);
void begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode);
void end_capture(const std::shared_ptr<Capture>& capture);

}  // namespace lipgrad_emulation

struct CUstream_st {
  std::shared_ptr<lipgrad_emulation::Stream> state;
};
struct CUevent_st {
  int device = 0;
  std::shared_ptr<lipgrad_emulation::Stream> stream;  // null until it is recorded
  std::uint64_t position = 0;                         // of that stream, or of its part in a capture
  std::shared_ptr<lipgrad_emulation::Capture> capture;
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};
