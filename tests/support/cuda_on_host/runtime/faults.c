/* Faults on demand: rules that make the n-th call of a name fail, lose the device, or take long. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "host.h"

enum { MOST_RULES = 16 };
enum { FAIL, LOSE, LOSE_LATER, HANG };

typedef struct {
    char name[96];
    long before; /* calls that pass before it acts */
    long times;
    int action, code;
    double seconds;
} rule;

static rule rules[MOST_RULES];
static atomic_int n_rules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int coh_add_rule(const char *name, long nth, long times, int action, int code, double seconds) {
    pthread_mutex_lock(&lock);
    int fits = n_rules < MOST_RULES && strlen(name) < sizeof rules[0].name;
    if (fits) {
        rule *added = &rules[n_rules];
        *added = (rule){.before = nth - 1, .times = times, .action = action, .code = code, .seconds = seconds};
        strcpy(added->name, name);
        n_rules++;
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

void coh_clear_rules(void) {
    pthread_mutex_lock(&lock);
    n_rules = 0;
    pthread_mutex_unlock(&lock);
}

/* How many times the rules have still to act. */
long coh_rules_left(void) {
    long left = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_rules; i++) left += rules[i].times;
    pthread_mutex_unlock(&lock);
    return left;
}

static int is_meant(const rule *given, const char *name, const char *groups) {
    if (!strcmp(given->name, name)) return 1;
    if (!strncmp(name, "host_", 5) && !strcmp(given->name, name + 5)) return 1;
    size_t length = strlen(given->name);
    for (const char *at = groups; at && (at = strstr(at, given->name)); at += length)
        if ((at == groups || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return 1;
    return 0;
}

int coh_apply_rules(const char *name, const char *groups) {
    if (!n_rules) return SUCCESS;
    int code = SUCCESS;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_rules && !code; i++) {
        rule *given = &rules[i];
        if (!given->times || !is_meant(given, name, groups) || given->before-- > 0) continue;
        given->before = 0;
        given->times--;
        if (given->action == FAIL) code = given->code;
        if (given->action == LOSE) {
            coh_lose(coh_here.device, given->code, "%d asked for: the device is lost in %s", given->code, name);
            code = given->code;
        }
        if (given->action == LOSE_LATER) coh_here.op_code = given->code;
        if (given->action == HANG) coh_here.op_hang_s = given->seconds;
    }
    pthread_mutex_unlock(&lock);
    return code;
}
