package config

import "time"

// verbsKeys are the keys of [verbs]. Their defaults are those of the provider's
// own Default, which this package cannot import; a test of the daemon compares
// them.
func verbsKeys() []key {
	return append(verbsPathKeys(), verbsQueueKeys()...)
}

// verbsPathKeys say which way packets take.
func verbsPathKeys() []key {
	return []key{
		bind("device", "", func(v *Verbs) *string { return &v.Device },
			text(`a name such as "mlx5_0", of at most 63 bytes without spaces and slashes, or "" for the first device with an active port`, optional(deviceName)),
			"The RDMA device."),
		bind("port", int64(0), func(v *Verbs) *int { return &v.Port },
			number(0, 255, 1),
			"The port of the device, from 1; 0 takes the first active one that has a GID as gid_index wants it."),
		bind("gid_index", int64(-1), func(v *Verbs) *int { return &v.GIDIndex },
			number(-1, 255, 1),
			"The entry of the port's GID table that packets come from; -1 chooses: RoCE v2 before v1, then IPv4 before "+
				"routable IPv6 before link-local addresses; on InfiniBand 0. Both ends need the same RoCE version."),
		bind("connect", "oob", func(v *Verbs) *string { return &v.Connect },
			oneOf("oob", "rdmacm"),
			`How queue pairs are connected: "oob" exchanges their numbers over the connection that the daemons have `+
				`anyway, "rdmacm" lets librdmacm do it, which some partitioned networks require. Both `+
				"ends need the same."),
		bind("mtu", int64(0), func(v *Verbs) *int { return &v.MTU },
			oneOfNumbers(0, 256, 512, 1024, 2048, 4096),
			"The path MTU in bytes; 0 takes the port's active MTU. A connection uses the smaller one of its two ends."),
		bind("service_level", int64(0), func(v *Verbs) *int { return &v.ServiceLevel },
			number(0, 15, 1),
			"The InfiniBand service level, which chooses a virtual lane; on RoCE the priority, if packets have a VLAN tag."),
		bind("traffic_class", int64(0), func(v *Verbs) *int { return &v.TrafficClass },
			number(0, 255, 1),
			"The traffic class of the global route header. On RoCE v2 it is the IP header's TOS byte, four times the DSCP: "+
				"switches that keep RoCE lossless by DSCP 26 want 104."),
		bind("hop_limit", int64(64), func(v *Verbs) *int { return &v.HopLimit },
			number(1, 255, 1),
			"The most routers that packets pass (the IP header's TTL on RoCE v2). 1 keeps them in the subnet."),
		bind("pkey_index", int64(0), func(v *Verbs) *int { return &v.PKeyIndex },
			number(0, 65535, 1),
			"The entry of the port's partition key table, on InfiniBand. Leave it at 0 on RoCE."),
	}
}

// verbsQueueKeys say how queue pairs behave.
func verbsQueueKeys() []key {
	return []key{
		bind("timeout", int64(14), func(v *Verbs) *int { return &v.Timeout },
			number(0, 31, 1),
			"How long an acknowledgement may take before a packet is sent again, as an exponent: 4.096us x 2^timeout per "+
				"try, so 14 is 67ms and one more doubles it. Devices may take up to four times as long. 0 waits for ever: the "+
				"loss of a packet or of the peer is then never noticed by the queue pair."),
		bind("retry_count", int64(7), func(v *Verbs) *int { return &v.RetryCount },
			number(0, 7, 1),
			"How often a packet is sent again before the connection breaks. A peer that is silently gone is noticed after "+
				"about (retry_count + 1) x timeout: 0.54s with the defaults."),
		bind("rnr_retry", int64(7), func(v *Verbs) *int { return &v.RNRRetry },
			number(0, 7, 1),
			"How often a send is repeated when the peer has no receive posted; 7 is for ever. A daemon that is short of "+
				"processor time is not a broken one, so for ever is right unless you debug."),
		bind("min_rnr_timer", int64(12), func(v *Verbs) *int { return &v.MinRNRTimer },
			number(0, 31, 1),
			"How long this node asks a sender to wait when it has no receive posted, as InfiniBand encodes it: 1 is 10us, "+
				"12 is 640us, 31 is 492ms, and 0 is 655ms."),
		bind("max_rd_atomic", int64(16), func(v *Verbs) *int { return &v.MaxReadAtomic },
			number(1, 255, 1),
			"The most reads and atomics under way on a queue pair, in each direction. The device's limit counts if it is less."),
		bind("max_inline", int64(220), func(v *Verbs) *int { return &v.MaxInline },
			number(0, 1024, 1),
			"The most bytes that a work request may carry itself, which saves the device one read of memory. Larger "+
				"values make send queues larger. The device's limit counts if it is less."),
		bind("connect_timeout", "5s", func(v *Verbs) *time.Duration { return &v.ConnectTimeout },
			duration(100*time.Millisecond, time.Minute),
			`How long a connection may take with connect = "rdmacm", all of it: looking up the address, the route, and `+
				"the connection itself."),
	}
}
