/* A libcuda.so.1 that answers questions about GPUs that are not there. FAKE_GPUS has a line for each GPU:
   UUID MIG-UUID BUS-ID NAME; both UUIDs are 32 hex digits and equal unless the GPU is a MIG instance.
   CUDA_VISIBLE_DEVICES is read as the CUDA programming guide says: numbers, GPU-UUID or MIG-UUID by their beginning,
   up to the first that names none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu { char whole[33], own[33], bus[32], name[128]; };
static struct gpu all[16], visible[16];
static int count;

static void spell(const char *hex, const char *kind, char *out) {
  sprintf(out, "%s-%.8s-%.4s-%.4s-%.4s-%.12s", kind, hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

int cuInit(unsigned flags) {
  int known = 0;
  char text[4096], *line, *rest = text;
  snprintf(text, sizeof text, "%s", getenv("FAKE_GPUS") ? getenv("FAKE_GPUS") : "");
  while ((line = strtok_r(rest, "\n", &rest)))
    if (sscanf(line, "%32s %32s %31s %127[^\n]", all[known].whole, all[known].own, all[known].bus, all[known].name) == 4)
      known++;
  char *asked = getenv("CUDA_VISIBLE_DEVICES"), list[1024], *word;
  count = 0;
  if (!asked) {
    memcpy(visible, all, sizeof all);
    count = known;
    return known ? 0 : 100;
  }
  snprintf(list, sizeof list, "%s", asked);
  rest = list;
  while ((word = strtok_r(rest, ",", &rest))) {
    int hit = -1;
    for (int n = 0; n < known; n++) {
      char gpu[64], mig[64];
      spell(all[n].whole, "GPU", gpu);
      spell(all[n].own, "MIG", mig);
      int is_mig = strcmp(all[n].whole, all[n].own);
      if ((strchr("0123456789", *word) && atoi(word) == n) || (!is_mig && !strncmp(gpu, word, strlen(word))) ||
          (is_mig && !strncmp(mig, word, strlen(word))))
        hit = n;
    }
    if (hit < 0) break;
    visible[count++] = all[hit];
  }
  return count ? 0 : 100;
}

int cuDeviceGetCount(int *found) { return *found = count, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "%s", visible[device].name), 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { return *size = 85017624576, 0; }
int cuDeviceGetPCIBusId(char *bus, int size, int device) { return snprintf(bus, size, "%s", visible[device].bus), 0; }

static int copy(unsigned char *out, const char *hex) {
  for (int n = 0; n < 16; n++) sscanf(hex + 2 * n, "%2hhx", out + n);
  return 0;
}
int cuDeviceGetUuid(unsigned char *out, int device) { return copy(out, visible[device].whole); }
int cuDeviceGetUuid_v2(unsigned char *out, int device) { return copy(out, visible[device].own); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const int known[][2] = {{75, 9},      {76, 0},      {16, 132},    {13, 1980000}, {36, 2619000}, {37, 5120},
                                 {38, 52428800}, {81, 233472}, {97, 232448}, {82, 65536},   {39, 2048},    {106, 32}};
  for (int n = 0; n < 12; n++)
    if (known[n][0] == attribute) return *value = known[n][1], 0;
  return 1;
}
