; What surrounds a kernel on the host: threads, barriers, shared memory, and what is noticed while it runs.
;
; The layouts are those of the classes of kernel_ir_launch.py.
%Here = type { [12 x i32], ptr, i64, i64, ptr, ptr, i64, ptr, i64, i64 }
; registers, shared memory, random state, mask of pauses, arguments, items, number of items, team, barriers, index

%Team = type { [64 x i8], i64, ptr, i64, ptr }
; barrier, threads, shared memory, its bytes, two sites a thread

%Fault = type { i64, i64, i64, i64, i64 }
; kind, value, site, block, thread

%Launch = type { ptr, i64, ptr, ptr, ptr, i32 }
; report, threads, %Here of each, their ids, action of signals, seconds

@report = internal global ptr null

declare i32 @fork()
declare void @_exit(i32) noreturn
declare i32 @pause()
declare i32 @alarm(i32)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_barrier_wait(ptr)
declare i32 @sched_yield()
declare ptr @memset(ptr, i32, i64)

; Write the first fault of a launch to memory that the parent sees, and end the process.
define internal void @host.fault(i64 %kind, i64 %value, i64 %site, i64 %block, i64 %thread) noinline cold {
  %report = load ptr, ptr @report
  %pair = cmpxchg ptr %report, i64 0, i64 %kind seq_cst seq_cst
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %write, label %wait
write:
  %p1 = getelementptr %Fault, ptr %report, i64 0, i32 1
  %p2 = getelementptr %Fault, ptr %report, i64 0, i32 2
  %p3 = getelementptr %Fault, ptr %report, i64 0, i32 3
  %p4 = getelementptr %Fault, ptr %report, i64 0, i32 4
  store i64 %value, ptr %p1
  store i64 %site, ptr %p2
  store i64 %block, ptr %p3
  store i64 %thread, ptr %p4
  call void @_exit(i32 97)
  unreachable
wait:
  call i32 @pause()
  br label %wait
}

define internal void @host.fault_here(ptr %here, i64 %kind, i64 %value, i64 %site) noinline cold {
  %pt = getelementptr %Here, ptr %here, i64 0, i32 0, i32 0
  %pb = getelementptr %Here, ptr %here, i64 0, i32 0, i32 6
  %t = load i32, ptr %pt
  %b = load i32, ptr %pb
  %thread = zext i32 %t to i64
  %block = zext i32 %b to i64
  call void @host.fault(i64 %kind, i64 %value, i64 %site, i64 %block, i64 %thread)
  ret void
}

; siginfo_t has the address at 16.
define void @host.signal(i32 %signal, ptr %info, ptr %context) {
  %p = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %p
  %kind = zext i32 %signal to i64
  call void @host.fault(i64 %kind, i64 %address, i64 -1, i64 -1, i64 -1)
  ret void
}

; All threads of a block wait for each other. Two that do so at different places never would on a GPU, or worse.
define internal void @host.barrier(ptr %here, i64 %site) noinline {
  %pteam = getelementptr %Here, ptr %here, i64 0, i32 7
  %team = load ptr, ptr %pteam
  %pcount = getelementptr %Here, ptr %here, i64 0, i32 8
  %count = load i64, ptr %pcount
  %next = add i64 %count, 1
  store i64 %next, ptr %pcount
  %pindex = getelementptr %Here, ptr %here, i64 0, i32 9
  %index = load i64, ptr %pindex
  %pthreads = getelementptr %Team, ptr %team, i64 0, i32 1
  %threads = load i64, ptr %pthreads
  %psites = getelementptr %Team, ptr %team, i64 0, i32 4
  %sites = load ptr, ptr %psites
  %odd = and i64 %count, 1
  %begin = mul i64 %odd, %threads
  %mine = add i64 %begin, %index
  %pmine = getelementptr i64, ptr %sites, i64 %mine
  %pfirst = getelementptr i64, ptr %sites, i64 %begin
  store atomic i64 %site, ptr %pmine seq_cst, align 8
  call i32 @pthread_barrier_wait(ptr %team)
  %first = load atomic i64, ptr %pfirst seq_cst, align 8
  %same = icmp eq i64 %first, %site
  br i1 %same, label %done, label %apart
apart:
  call void @host.fault_here(ptr %here, i64 101, i64 %first, i64 %site)
  br label %done
done:
  ret void
}

define internal void @host.align(ptr %here, ptr %address, i64 %mask, i64 %site) alwaysinline {
  %bits = ptrtoint ptr %address to i64
  %low = and i64 %bits, %mask
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %done, label %fault, !prof !{!"branch_weights", i32 1000, i32 1}
fault:
  call void @host.fault_here(ptr %here, i64 102, i64 %bits, i64 %site)
  br label %done
done:
  ret void
}

; A shift by all of a word's bits, or more, is any number to LLVM.
define internal void @host.shift(ptr %here, i64 %by, i64 %bits, i64 %site) alwaysinline {
  %fine = icmp ult i64 %by, %bits
  br i1 %fine, label %done, label %fault, !prof !{!"branch_weights", i32 1000, i32 1}
fault:
  call void @host.fault_here(ptr %here, i64 103, i64 %by, i64 %site)
  br label %done
done:
  ret void
}

define internal void @host.overflow(ptr %here, i1 %flag, i64 %site) alwaysinline {
  br i1 %flag, label %fault, label %done, !prof !{!"branch_weights", i32 1, i32 1000}
fault:
  call void @host.fault_here(ptr %here, i64 104, i64 0, i64 %site)
  br label %done
done:
  ret void
}

define internal void @host.raised(ptr %here, i64 %site) alwaysinline {
  call void @host.fault_here(ptr %here, i64 105, i64 0, i64 %site)
  ret void
}

; Let other threads go first, now and then.
define internal void @host.pause(ptr %here) alwaysinline {
  %p = getelementptr %Here, ptr %here, i64 0, i32 2
  %s0 = load i64, ptr %p
  %a = shl i64 %s0, 13
  %s1 = xor i64 %s0, %a
  %b = lshr i64 %s1, 7
  %s2 = xor i64 %s1, %b
  %c = shl i64 %s2, 17
  %s3 = xor i64 %s2, %c
  store i64 %s3, ptr %p
  %pmask = getelementptr %Here, ptr %here, i64 0, i32 3
  %mask = load i64, ptr %pmask
  %low = and i64 %s3, %mask
  %now = icmp eq i64 %low, 0
  br i1 %now, label %yield, label %done, !prof !{!"branch_weights", i32 1, i32 100}
yield:
  call i32 @sched_yield()
  br label %done
done:
  ret void
}

; A thread of the system: one of a block, block after block, or any of any block where threads need nothing of each other.
define internal ptr @host.thread(ptr %here) {
  %pargs = getelementptr %Here, ptr %here, i64 0, i32 4
  %args = load ptr, ptr %pargs
  %pitems = getelementptr %Here, ptr %here, i64 0, i32 5
  %items = load ptr, ptr %pitems
  %pn = getelementptr %Here, ptr %here, i64 0, i32 6
  %n = load i64, ptr %pn
  %pteam = getelementptr %Here, ptr %here, i64 0, i32 7
  %team = load ptr, ptr %pteam
  %pindex = getelementptr %Here, ptr %here, i64 0, i32 9
  %index = load i64, ptr %pindex
  %leads = icmp eq i64 %index, 0
  %alone = icmp eq ptr %team, null
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %after, %end ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %begin, label %leave
begin:
  %two = shl i64 %i, 1
  %pblock = getelementptr i32, ptr %items, i64 %two
  %block = load i32, ptr %pblock
  %one = add i64 %two, 1
  %pthread = getelementptr i32, ptr %items, i64 %one
  %thread = load i32, ptr %pthread
  %to_thread = getelementptr %Here, ptr %here, i64 0, i32 0, i32 0
  %to_block = getelementptr %Here, ptr %here, i64 0, i32 0, i32 6
  store i32 %thread, ptr %to_thread
  store i32 %block, ptr %to_block
  br i1 %alone, label %run, label %meet
meet:
  br i1 %leads, label %poison, label %met
poison:
  %pshared = getelementptr %Team, ptr %team, i64 0, i32 2
  %shared = load ptr, ptr %pshared
  %psize = getelementptr %Team, ptr %team, i64 0, i32 3
  %size = load i64, ptr %psize
  call ptr @memset(ptr %shared, i32 219, i64 %size)
  br label %met
met:
  call void @host.barrier(ptr %here, i64 -1)
  br label %run
run:
  call void @host.kernel(ptr %args, ptr %here)
  br i1 %alone, label %end, label %part
part:
  call void @host.barrier(ptr %here, i64 -2)
  br label %end
end:
  %after = add i64 %i, 1
  br label %head
leave:
  ret ptr null
}

; In a process of its own, whose id is returned: what a kernel does wrong ends that one.
define i32 @host.launch(ptr %launch) {
  %child = call i32 @fork()
  %inside = icmp eq i32 %child, 0
  br i1 %inside, label %start, label %parent
parent:
  ret i32 %child
start:
  %report = load ptr, ptr %launch
  store ptr %report, ptr @report
  %pn = getelementptr %Launch, ptr %launch, i64 0, i32 1
  %n = load i64, ptr %pn
  %pheres = getelementptr %Launch, ptr %launch, i64 0, i32 2
  %heres = load ptr, ptr %pheres
  %pids = getelementptr %Launch, ptr %launch, i64 0, i32 3
  %ids = load ptr, ptr %pids
  %paction = getelementptr %Launch, ptr %launch, i64 0, i32 4
  %action = load ptr, ptr %paction
  %pseconds = getelementptr %Launch, ptr %launch, i64 0, i32 5
  %seconds = load i32, ptr %pseconds
  ; SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGALRM
  call i32 @sigaction(i32 4, ptr %action, ptr null)
  call i32 @sigaction(i32 5, ptr %action, ptr null)
  call i32 @sigaction(i32 7, ptr %action, ptr null)
  call i32 @sigaction(i32 8, ptr %action, ptr null)
  call i32 @sigaction(i32 11, ptr %action, ptr null)
  call i32 @sigaction(i32 14, ptr %action, ptr null)
  call i32 @alarm(i32 %seconds)
  br label %create
create:
  %i = phi i64 [ 0, %start ], [ %i1, %created ]
  %here = getelementptr %Here, ptr %heres, i64 %i
  %id = getelementptr i64, ptr %ids, i64 %i
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @host.thread, ptr %here)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %created, label %refused
refused:
  call void @host.fault(i64 100, i64 %i, i64 -1, i64 -1, i64 -1)
  unreachable
created:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %create, label %join
join:
  %j = phi i64 [ 0, %created ], [ %j1, %join ]
  %jid = getelementptr i64, ptr %ids, i64 %j
  %thread = load i64, ptr %jid
  call i32 @pthread_join(i64 %thread, ptr null)
  %j1 = add i64 %j, 1
  %unfinished = icmp ult i64 %j1, %n
  br i1 %unfinished, label %join, label %done
done:
  call void @_exit(i32 0)
  unreachable
}
