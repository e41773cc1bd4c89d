// A driver with one card whose memory is the host's and whose kernels are fill and
// column_sum_parts with add_parts: it shows that libraries are opened, functions found by their
// names and called as C calls them. A function that is given what it should not returns 1.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef struct { const char *name; } *CUfunction;
typedef struct { struct timespec at; } *CUevent;

static int context, module, stream;
static __thread void *current;

CUresult cuInit(unsigned flags) { return flags != 0; }
CUresult cuDriverGetVersion(int *version) { *version = 12020; return 0; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return 0; }
CUresult cuDeviceGet(int *device, int index) { *device = 7; return index != 0; }
CUresult cuDeviceGetName(char *name, int room, int device) { strncpy(name, "Host in disguise", room); return device != 7; }
CUresult cuDeviceGetPCIBusId(char *id, int room, int device) { strncpy(id, "0000:01:00.0", room); return device != 7; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)5 << 32; return device != 7; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
  *value = attribute == 75 ? 9 : attribute == 16 ? 132 : 0;
  return device != 7;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return device != 7 || flags != 4; }
CUresult cuDevicePrimaryCtxRetain(void **to, int device) { *to = &context; return device != 7; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { return device != 7; }
CUresult cuCtxSetCurrent(void *to) { current = to; return to != &context; }
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { *free = (size_t)3 << 32; *total = (size_t)5 << 32; return current != &context; }
CUresult cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = (uint64_t)malloc(bytes); return current != &context; }
CUresult cuMemFree_v2(uint64_t address) { free((void *)address); return current != &context; }
CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned flags) { *to = malloc(bytes); return flags != 0; }
CUresult cuMemFreeHost(void *memory) { free(memory); return 0; }
CUresult cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *s) { memcpy((void *)to, from, bytes); return s != &stream; }
CUresult cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *s) { memcpy(to, (void *)from, bytes); return s != &stream; }
CUresult cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)from, bytes); return current != &context; }
CUresult cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *s) { memset((void *)to, value, bytes); return s != &stream; }
CUresult cuStreamCreate(void **to, unsigned flags) { *to = &stream; return flags != 1; }
CUresult cuStreamDestroy_v2(void *s) { return s != &stream; }
CUresult cuStreamSynchronize(void *s) { return s != &stream; }
CUresult cuStreamWaitEvent(void *s, CUevent event, unsigned flags) { return s != &stream || !event || flags != 0; }
CUresult cuEventCreate(CUevent *to, unsigned flags) { *to = calloc(1, sizeof **to); return flags != 1; }
CUresult cuEventDestroy_v2(CUevent event) { free(event); return 0; }
CUresult cuEventRecord(CUevent event, void *s) { return clock_gettime(CLOCK_MONOTONIC, &event->at) != 0 || s != &stream; }
CUresult cuEventSynchronize(CUevent event) { return event->at.tv_sec == 0 && event->at.tv_nsec == 0; }
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
  *milliseconds = (to->at.tv_sec - from->at.tv_sec) * 1e3f + (to->at.tv_nsec - from->at.tv_nsec) / 1e6f;
  return 0;
}

CUresult cuModuleLoadDataEx(void **to, const void *image, unsigned options, const int *names, void **values)
{
  *to = &module;
  strncpy(values[0], "said", (size_t)values[1]);
  return strstr(image, ".visible .entry fill(") == NULL || options != 2 || names[0] != 5 || names[1] != 6;
}
CUresult cuModuleUnload(void *m) { return m != &module; }
CUresult cuModuleGetFunction(CUfunction *to, void *m, const char *name)
{
  *to = malloc(sizeof **to);
  (*to)->name = strdup(name);
  return m != &module;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        void *s, void **params, void **extra)
{
  struct { float *x; uint64_t at, n; float value; } *fill = extra[1];
  struct { float *to; uint64_t toAt; const float *from; uint64_t fromAt; int a, b, c; } *sum = extra[1];
  const size_t bytes = *(size_t *)extra[3];
  if (current != &context || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared != 0 || s != &stream || params ||
      extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])
    return 1;
  if (strcmp(f->name, "fill") == 0) {
    for (uint64_t i = 0; i < fill->n; i++)
      fill->x[fill->at + i] = fill->value;
    return gx != (fill->n + 255) / 256 || gy != 1 || bytes != 28;
  }
  if (strcmp(f->name, "column_sum_parts") == 0) { // a rows, b columns, c rows of a part
    for (int j = 0; j < sum->b; j++)
      for (int i = 0; i < sum->a; i++) {
        float *to = &sum->to[sum->toAt + i / sum->c * sum->b + j];
        *to = (i % sum->c ? *to : 0) + sum->from[sum->fromAt + i * sum->b + j];
      }
    return bytes != 44;
  }
  if (strcmp(f->name, "add_parts") == 0) { // a columns, b parts
    for (int j = 0; j < sum->a; j++) {
      sum->to[sum->toAt + j] *= sum->c;
      for (int i = 0; i < sum->b; i++)
        sum->to[sum->toAt + j] += sum->from[sum->fromAt + i * sum->a + j];
    }
    return bytes != 44;
  }
  return 1;
}
